"""From difficulty scores to weights between 0 and 1, and what these weights look like."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from difficulty_service.errors import ConfigError, TrainingError
from trainer.config import Normalise

PERCENTS = (1, 5, 25, 50, 75, 95, 99)

NEGLIGIBLE = 0.01
"""A weight up to this leaves its sample as good as unregularised."""

COLLAPSED = 0.01
"""Weights are called collapsed where a smaller share of samples is above NEGLIGIBLE."""

NEARLY_CONSTANT = 0.05
"""Weights are called so where their standard deviation is a smaller share of their mean."""


@dataclass(frozen=True)
class WeightsDistribution:
    """What the weights of a run look like.

    Attributes:
        count: Number of weights.
        mean: Their mean; alpha times this is the strength of the entropy term on average.
        std: Standard deviation, divided by the count.
        min: The smallest.
        max: The largest.
        quantiles: By percent: "1", "5", "25", "50", "75", "95", "99".
        effective_share: Kish's effective sample size over the count: 1 where all weights are
            equal, 1 / count where one weight is all there is.
        share_above_hundredth: Share of samples with a weight above 0.01.
        missing: Samples without a score, which took the mean weight.
        surplus: Scores that belong to no sample of the dataset.
    """

    count: int
    mean: float
    std: float
    min: float
    max: float
    quantiles: Mapping[str, float]
    effective_share: float
    share_above_hundredth: float
    missing: int = 0
    surplus: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return dataclasses.asdict(self)

    def summary(self) -> str:
        """One paragraph for people, with a warning where the weights tell little apart."""
        q = self.quantiles
        sentences = [
            f"Weights of {self.count:,} training samples: mean {self.mean:.3g}, standard deviation "
            f"{self.std:.3g}, from {self.min:.3g} to {self.max:.3g}; median {q['50']:.3g}, nine in "
            f"ten between {q['5']:.3g} and {q['95']:.3g}.",
            f"Effective share {self.effective_share:.1%}; {self.share_above_hundredth:.1%} are "
            f"above {NEGLIGIBLE}.",
        ]
        if self.missing:
            sentences.append(f"Without a score, at the mean weight: {self.missing:,}.")
        if self.surplus:
            sentences.append(f"Scores that belong to no sample: {self.surplus:,}.")
        return " ".join(sentences + self._warnings())

    def _warnings(self) -> list[str]:
        """At most one: collapsed weights may be nearly constant, too, but then it is too late."""
        if self.share_above_hundredth < COLLAPSED:
            return [
                f"Warning: the weights have collapsed: {self.share_above_hundredth:.2%} of the "
                f"samples are above {NEGLIGIBLE}, so nearly all are trained as if alpha were 0. "
                'Use regulariser.normalise = "minmax", or a larger regulariser.score_temperature.'
            ]
        if self.std < NEARLY_CONSTANT * self.mean:
            return [
                "Warning: the weights are nearly constant (coefficient of variation "
                f"{self.std / self.mean:.3f}), so difficulty makes next to no difference. Use "
                "another regulariser.normalise, or a smaller regulariser.score_temperature."
            ]
        return []


def sample_weights(
    scores: Tensor,
    *,
    normalise: Normalise = "minmax",
    score_temperature: float = 0.7,
    c: float = 1e-3,
    winsorise: float = 0.001,
    dim: int | None = None,
) -> Tensor:
    """Equation 10 of Cui et al. (2023): exp(r / T) / (max exp(r / T) + c), larger for harder.

    The paper puts raw scores r into it; those of a feature space with many dimensions differ by
    hundreds, so that all but a few weights become 0. Hence scores are normalised first.

    Args:
        scores: Finite, larger is harder. Shape (samples,).
        normalise: "minmax" maps the least score to 0 and the largest to 1, "zscore" the mean to 0
            and one standard deviation to 1, "per_dimension" divides by `dim`, "none" is the paper.
            "minmax" and "zscore" make equal scores 0.
        score_temperature: T, above 0; smaller makes weights more peaked.
        c: Zero or more.
        winsorise: Share of scores at either end, in [0, 0.5), that "minmax" and "zscore" first
            pull in to the next score.
        dim: Length of the features behind the scores.

    Returns:
        Weights in (0, 1), in the order of the scores: those that float64 would round to 0 or 1
        are the numbers next to these. Float64 of shape (samples,).

    Raises:
        ConfigError: An option is out of its range, or "per_dimension" lacks `dim`.
        TrainingError: There are no scores, or some are not finite.
    """
    if not score_temperature > 0 or not c >= 0:
        raise ConfigError(
            f"score_temperature {score_temperature} must be above 0, and c {c} zero or more"
        )
    scores = scores.detach().double()
    _check_scores(scores)
    r = _normalised(scores, normalise, winsorise, dim)
    largest = r.max()
    log_weights = (r - largest) / score_temperature
    if c > 0:
        # Both sides divided by max exp(r / T): the exponentials themselves overflow.
        log_c = math.log(c) - largest / score_temperature
        log_weights = log_weights - torch.logaddexp(torch.zeros_like(log_c), log_c)
    limits = torch.finfo(torch.float64)
    return log_weights.exp().clamp(limits.tiny, 1 - limits.eps / 2)


def describe_weights(weights: Tensor, *, missing: int = 0, surplus: int = 0) -> WeightsDistribution:
    """Mean, spread, quantiles and effective share of weights.

    Args:
        weights: In (0, 1), one at least. Shape (samples,).
        missing: How many of them stand in for scores that are not there.
        surplus: How many scores belong to no sample.
    """
    values = weights.detach().double().cpu().numpy()
    # The squares of collapsed weights would underflow to 0 / 0.
    relative = values / values.max()
    quantiles = np.quantile(values, np.array(PERCENTS) / 100)
    return WeightsDistribution(
        count=len(values),
        mean=float(values.mean()),
        std=float(values.std()),
        min=float(values.min()),
        max=float(values.max()),
        quantiles={str(p): float(q) for p, q in zip(PERCENTS, quantiles, strict=True)},
        effective_share=float(relative.mean() ** 2 / np.square(relative).mean()),
        share_above_hundredth=float((values > NEGLIGIBLE).mean()),
        missing=missing,
        surplus=surplus,
    )


def _check_scores(scores: Tensor) -> None:
    if scores.ndim != 1 or not len(scores):
        raise TrainingError(
            f"scores of shape {tuple(scores.shape)} make no weights; give one score per sample, "
            "in one dimension, and one sample at least"
        )
    not_finite = int((~scores.isfinite()).sum())
    if not_finite:
        raise TrainingError(
            f"{not_finite:,} of {len(scores):,} scores are NaN or infinite, where finite ones were "
            "expected; score again, or choose another column"
        )


def _normalised(scores: Tensor, normalise: Normalise, winsorise: float, dim: int | None) -> Tensor:
    match normalise:
        case "minmax":
            return _between_0_and_1(_winsorised(scores, winsorise))
        case "zscore":
            # A map to [0, 1] in between changes nothing but keeps the squares in range.
            r = _between_0_and_1(_winsorised(scores, winsorise))
            return (r - r.mean()) / r.std(correction=0) if r.any() else r
        case "per_dimension":
            if dim is None or dim < 1:
                raise ConfigError(
                    f'normalise = "per_dimension" divides by the length of the features, and {dim} '
                    "is none; give a length of 1 or more, or choose another normalise"
                )
            return scores / dim
        case "none":
            return scores
    raise ConfigError(
        f"there is no normalise {normalise!r}; choose 'minmax', 'per_dimension', 'zscore' or 'none'"
    )


def _winsorised(scores: Tensor, share: float) -> Tensor:
    """Scores with the given share at either end pulled in to the next score."""
    if not 0 <= 2 * share < 1:
        raise ConfigError(f"winsorise {share} must be a share of 0 or more and below 0.5")
    pulled_in = math.floor(share * len(scores) + 1e-9)  # 0.29 x 100 is 28.999... in float64
    ordered = scores.sort().values
    return scores.clamp(ordered[pulled_in], ordered[-1 - pulled_in])


def _between_0_and_1(scores: Tensor) -> Tensor:
    """The least score as 0 and the largest as 1; equal scores as 0."""
    scores = scores / scores.abs().max().clamp_min(1)  # else the range may overflow
    low, high = scores.aminmax()
    return (scores - low) / (high - low) if high > low else torch.zeros_like(scores)
