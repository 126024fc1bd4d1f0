"""AdaFocal: focal loss whose gammas, one per bin of probability, follow the calibration error.

Ghosh et al. (2022). After every epoch the validation set is cut into bins of equal mass by
confidence. Where a bin is over-confident its gamma grows, where it is under-confident it shrinks,
until the loss turns into inverse focal loss, which asks for more confidence. The paper gives the
growth; switching sign, limits and the borders of bins are those of its code.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class GammaRule:
    """How gammas follow calibration gaps; the defaults are the published ones.

    Attributes:
        rate: Factor on the gap in the exponent, lambda in the paper.
        switch: Size of gamma below which focal and inverse focal loss change places.
        smallest: Floor of gamma.
        largest: Ceiling of gamma.
    """

    rate: float = 1.0
    switch: float = 0.2
    smallest: float = -2.0
    largest: float = 20.0


@dataclass(frozen=True)
class ProbabilityBins:
    """Bins from low to high probability, each with its gamma.

    Attributes:
        gammas: Negative where inverse focal loss acts. Shape (bins,).
        lower: Lower edges. Shape (bins,).
        upper: Upper edges. Shape (bins,).
    """

    gammas: Tensor
    lower: Tensor
    upper: Tensor

    def gammas_of(self, probabilities: Tensor) -> Tensor:
        """The gamma of every sample's bin, lower edge included.

        Whatever lies outside all bins belongs to the nearest one, and NaN to the last.

        Args:
            probabilities: Of the target. Shape (samples,).

        Returns:
            Shape (samples,), without gradient.
        """
        edges = self.upper[:-1].to(probabilities)
        bins = torch.searchsorted(edges, probabilities.detach().contiguous(), right=True)
        return self.gammas.to(probabilities)[bins]


def first_bins(num_bins: int = 15, gamma: float = 1.0) -> ProbabilityBins:
    """Bins of equal width on [0, 1] with one gamma, before anything was measured.

    Args:
        num_bins: How many.
        gamma: Of every bin.

    Returns:
        Bins in float64.
    """
    edges = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64)
    gammas = torch.full((num_bins,), gamma, dtype=torch.float64)
    return ProbabilityBins(gammas, edges[:-1], edges[1:])


def update_bins(
    bins: ProbabilityBins, confidences: Tensor, correct: Tensor, rule: GammaRule
) -> ProbabilityBins:
    """Gammas and edges after one pass over the validation set.

    Edges are interpolated between the sorted confidences at equal steps of rank, so the new bins
    have equal mass. Bin b keeps its gamma's history although its edges move.

    Args:
        bins: Before the pass.
        confidences: Largest probabilities of validation samples. Shape (samples,).
        correct: Whether each prediction was right. Shape (samples,).
        rule: How gammas follow gaps.

    Returns:
        New bins, in float64 on the CPU.

    Raises:
        ValueError: There are no samples, or confidences are not finite.
    """
    if len(confidences) == 0:
        raise ValueError("AdaFocal cannot update from 0 validation samples; give it at least one")
    broken = int((~confidences.isfinite()).sum())
    if broken:
        raise ValueError(
            f"{broken} of {len(confidences)} confidences are not finite: the model has diverged; "
            "train with a smaller learning rate or clip the gradient"
        )
    confidence = confidences.detach().to("cpu", torch.float64).numpy()
    right = correct.detach().to("cpu", torch.float64).numpy()
    num_bins, samples = len(bins.gammas), len(confidence)
    edges = np.interp(
        np.linspace(0, samples, num_bins + 1), np.arange(samples), np.sort(confidence)
    )
    # Bins are open below: the sample of least confidence is in none, as in the published code.
    members = np.searchsorted(edges, confidence, side="left") - 1
    inside = members >= 0
    counts = np.bincount(members[inside], minlength=num_bins)
    excess = np.bincount(members[inside], weights=(confidence - right)[inside], minlength=num_bins)
    gaps = torch.from_numpy(excess / np.maximum(counts, 1))
    gammas = next_gammas(bins.gammas.to("cpu", torch.float64), gaps, rule)
    return ProbabilityBins(gammas, torch.from_numpy(edges[:-1]), torch.from_numpy(edges[1:]))


def next_gammas(gammas: Tensor, gaps: Tensor, rule: GammaRule) -> Tensor:
    """One step of the rule: grow or shrink, change sides near zero, keep within the limits.

    Args:
        gammas: Shape (bins,).
        gaps: Mean confidence minus accuracy, zero for an empty bin. Shape (bins,).
        rule: How gammas follow gaps.

    Returns:
        Shape (bins,).
    """
    positive = gammas > 0
    grown = gammas * torch.where(positive, rule.rate * gaps, -rule.rate * gaps).exp()
    other_side = rule.switch * (1 - 2 * (grown > 0).to(grown))
    switched = torch.where(grown.abs() < rule.switch, other_side, grown)
    return switched.clamp(rule.smallest, rule.largest)


def binned_focal(logits: Tensor, targets: Tensor, *, bins: ProbabilityBins) -> Tensor:
    """Focal loss with the gamma g of each sample's bin, inverse focal loss where g is negative.

    `-(1 - p_t) ** g * log p_t` and `-(1 + p_t) ** |g| * log p_t`.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        bins: Gammas by the probability of the target; no gradient flows through their choice.

    Returns:
        One loss per sample. Shape (samples,).
    """
    loss = F.cross_entropy(logits, targets, reduction="none")
    own = (-loss).exp()
    gammas = bins.gammas_of(own)
    # A gamma below 1 has an infinite slope at 0, where a p_t that rounds to 1 lies.
    smallest = torch.finfo(loss.dtype).tiny
    base = torch.where(gammas >= 0, 1 - own, 1 + own).clamp_min(smallest)
    return base ** gammas.abs() * loss


class AdaFocal:
    """The loss with its memory: the loop tells it the validation pass after every epoch."""

    def __init__(
        self,
        *,
        num_bins: int = 15,
        first_gamma: float = 1.0,
        rate: float = 1.0,
        switch: float = 0.2,
        limits: tuple[float, float] = (-2.0, 20.0),
    ) -> None:
        self.rule = GammaRule(rate, switch, limits[0], limits[1])
        self.bins = first_bins(num_bins, first_gamma)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """`binned_focal` with the bins of the latest validation pass.

        Args:
            logits: Shape (samples, classes).
            targets: Class indices. Shape (samples,).

        Returns:
            One loss per sample. Shape (samples,).
        """
        return binned_focal(logits, targets, bins=self.bins)

    def after_epoch(self, confidences: Tensor, correct: Tensor) -> None:
        """Updates the bins from a validation pass.

        Args:
            confidences: Largest probabilities. Shape (samples,).
            correct: Whether each prediction was right. Shape (samples,).
        """
        self.bins = update_bins(self.bins, confidences, correct, self.rule)

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint must keep."""
        return {"gammas": self.bins.gammas, "lower": self.bins.lower, "upper": self.bins.upper}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes up what `state_dict` gave."""
        self.bins = ProbabilityBins(state["gammas"], state["lower"], state["upper"])
