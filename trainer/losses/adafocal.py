"""AdaFocal: focal loss whose gammas, one per bin of probability, follow the calibration error.

Ghosh et al. (2022). After every epoch the validation samples are grouped into bins of equal mass
by confidence. The gamma of an over-confident bin grows; that of an under-confident bin shrinks,
until the loss becomes inverse focal loss, which rewards confidence. The paper gives the growth;
the change of sign, the limits and the edges of the bins follow its code.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from trainer.losses.constants import require_at_least
from trainer.losses.targets import expected, nll_of_targets


@dataclass(frozen=True)
class GammaRule:
    """The update rule of gammas by calibration gaps, with the published defaults.

    Attributes:
        rate: Factor of the gap in the exponent, lambda in the paper.
        switch: Absolute value of gamma below which its sign changes, from focal to inverse focal
            loss or back.
        smallest: Lower bound of gamma.
        largest: Upper bound of gamma.
    """

    rate: float = 1.0
    switch: float = 0.2
    smallest: float = -2.0
    largest: float = 20.0


@dataclass(frozen=True)
class ProbabilityBins:
    """Bins in order of ascending probability, each with its gamma.

    Attributes:
        gammas: Gamma of each bin, negative for inverse focal loss. Shape (bins,).
        lower: Lower edges. Shape (bins,).
        upper: Upper edges. Shape (bins,).
    """

    gammas: Tensor
    lower: Tensor
    upper: Tensor
    _placed: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def gammas_of(self, probabilities: Tensor) -> Tensor:
        """The gamma of the bin of each target's probability, without gradient; shape as given.

        A bin includes its lower edge. A probability outside all bins belongs to the nearest one,
        and NaN to the last.
        """
        edges, gammas = self._near(probabilities)
        bins = torch.searchsorted(edges, probabilities.detach().contiguous(), right=True)
        return gammas[bins]

    def _near(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Inner edges and gammas as probabilities are; copied once, as a copy waits for a GPU."""
        key = probabilities.device, probabilities.dtype
        if key not in self._placed:
            self._placed[key] = self.upper[:-1].to(probabilities), self.gammas.to(probabilities)
        return self._placed[key]


def first_bins(num_bins: int = 15, gamma: float = 1.0) -> ProbabilityBins:
    """Initial bins, in float64, of equal width on [0, 1] and with the same gamma."""
    edges = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64)
    gammas = torch.full((num_bins,), gamma, dtype=torch.float64)
    return ProbabilityBins(gammas, edges[:-1], edges[1:])


def update_bins(
    bins: ProbabilityBins, confidences: Tensor, correct: Tensor, rule: GammaRule
) -> ProbabilityBins:
    """Updates gammas and edges after one pass over the validation samples.

    Edges are interpolated between the sorted confidences at equal steps of rank, so the new bins
    have equal mass. Bin b keeps its gamma's history although its edges move. Confidences, the
    largest probabilities, and correctness are of shape (samples,); the new bins are in float64 on
    the CPU.

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
    # Bins exclude their lower edge, so the least confident sample is in none, as published.
    members = np.searchsorted(edges, confidence, side="left") - 1
    inside = members >= 0
    counts = np.bincount(members[inside], minlength=num_bins)
    excess = np.bincount(members[inside], weights=(confidence - right)[inside], minlength=num_bins)
    gaps = torch.from_numpy(excess / np.maximum(counts, 1))
    gammas = next_gammas(bins.gammas.to("cpu", torch.float64), gaps, rule)
    return ProbabilityBins(gammas, torch.from_numpy(edges[:-1]), torch.from_numpy(edges[1:]))


def describe_bins(
    bins: ProbabilityBins, confidences: Tensor, correct: Tensor
) -> list[dict[str, float | int | None]]:
    """The calibration of validation samples in the bins that `update_bins` made of them.

    For each bin its number from zero, edges, number of samples, their mean confidence and accuracy
    (None without samples), the gap between the two and the gamma of the next epoch.
    """
    confidence = confidences.detach().to("cpu", torch.float64)
    right = correct.detach().to("cpu", torch.float64)
    members = torch.searchsorted(torch.cat((bins.lower, bins.upper[-1:])), confidence) - 1
    rows: list[dict[str, float | int | None]] = []
    for number in range(len(bins.gammas)):
        inside = members == number
        samples = int(inside.sum())
        mean = confidence[inside].mean().item() if samples else None
        accuracy = right[inside].mean().item() if samples else None
        gap = (confidence - right)[inside].mean().item() if samples else 0.0
        rows.append(
            {
                "bin": number,
                "lower": bins.lower[number].item(),
                "upper": bins.upper[number].item(),
                "samples": samples,
                "mean_confidence": mean,
                "accuracy": accuracy,
                "gap": gap,
                "gamma": bins.gammas[number].item(),
            }
        )
    return rows


def next_gammas(gammas: Tensor, gaps: Tensor, rule: GammaRule) -> Tensor:
    """One step of the update rule: grow or shrink, change sign near zero, clip to the limits.

    Gaps are mean confidence minus accuracy, zero for an empty bin. All of shape (bins,).
    """
    positive = gammas > 0
    grown = gammas * torch.where(positive, rule.rate * gaps, -rule.rate * gaps).exp()
    opposite = rule.switch * (1 - 2 * (grown > 0).to(grown))
    switched = torch.where(grown.abs() < rule.switch, opposite, grown)
    return switched.clamp(rule.smallest, rule.largest)


def binned_focal(logits: Tensor, targets: Tensor, *, bins: ProbabilityBins) -> Tensor:
    """Focal loss with the gamma g of each sample's bin, inverse focal loss where g is negative.

    `-(1 - p_t) ** g * log p_t` and `-(1 + p_t) ** |g| * log p_t`. Of a distribution, the mean of
    the losses of all classes by it, each with the gamma of its own probability.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        bins: Gammas by the probability of the target, chosen without gradient.

    Returns:
        One loss per sample. Shape (samples,).
    """
    loss = nll_of_targets(logits, targets)
    own = (-loss).exp()
    gammas = bins.gammas_of(own)
    # A gamma below 1 has an infinite slope at 0, where a p_t that rounds to 1 lies.
    smallest = torch.finfo(loss.dtype).tiny
    base = torch.where(gammas >= 0, 1 - own, 1 + own).clamp_min(smallest)
    return expected(base ** gammas.abs() * loss, targets)


class AdaFocal:
    """Focal loss with a gamma per bin, by the calibration of the validation samples it needs.

    Where confidence is too low, it is inverse focal loss. Bins are updated after every epoch.
    """

    def __init__(
        self,
        *,
        num_bins: int = 15,
        first_gamma: float = 1.0,
        rate: float = 1.0,
        switch: float = 0.2,
        limits: tuple[float, float] = (-2.0, 20.0),
    ) -> None:
        require_at_least(1, num_bins=num_bins)
        require_at_least(0, rate=rate, switch=switch)
        if not limits[0] <= first_gamma <= limits[1]:
            raise ValueError(f"first_gamma = {first_gamma:g} must be within limits = {limits}")
        self.rule = GammaRule(rate, switch, limits[0], limits[1])
        self.bins = first_bins(num_bins, first_gamma)
        self._rows: list[dict[str, float | int | None]] = []

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """`binned_focal` with the bins of the latest validation pass."""
        return binned_focal(logits, targets, bins=self.bins)

    def after_epoch(self, confidences: Tensor, correct: Tensor) -> None:
        """Updates the bins from a validation pass."""
        self.bins = update_bins(self.bins, confidences, correct, self.rule)
        self._rows = describe_bins(self.bins, confidences, correct)

    def epoch_rows(self) -> list[dict[str, float | int | None]]:
        """`describe_bins` of the latest update; empty before the first."""
        return self._rows

    def state_dict(self) -> dict[str, Tensor]:
        """The state for a checkpoint."""
        return {"gammas": self.bins.gammas, "lower": self.bins.lower, "upper": self.bins.upper}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restores the state of a checkpoint."""
        self.bins = ProbabilityBins(state["gammas"], state["lower"], state["upper"])
