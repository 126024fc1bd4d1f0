"""Weights between 0 and 1 from difficulty scores, and statistics of these weights."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from difficulty_service.base.errors import ConfigError, TrainingError
from trainer.config import Normalise

PERCENTS = (1, 5, 25, 50, 75, 95, 99)

NEGLIGIBLE = 0.01
"""Weight up to which a sample is practically not regularised."""

COLLAPSED = 0.01
"""Fraction of samples above NEGLIGIBLE below which the weights have collapsed."""

HISTOGRAM_BINS = 20
"""Number of bins of equal width on [0, 1] that weights are counted in."""

NEARLY_CONSTANT = 0.05
"""Coefficient of variation below which weights are nearly constant.

At this one, permuting the weights among the samples changed the NLL of probes by at most 0.003.
"""


@dataclass(frozen=True)
class WeightsDistribution:
    """Statistics of the weights of a run.

    Attributes:
        mean: Mean weight; alpha times this is the mean strength of the entropy term.
        quantiles: Quantiles by percent: "1", "5", "25", "50", "75", "95", "99".
        effective_share: Kish's effective sample size divided by the count: 1 where all weights
            are equal, 1 / count where one weight dominates.
        share_above_hundredth: Fraction of samples with a weight above 0.01.
        histogram: Number of weights in each of 20 bins of equal width on [0, 1].
        missing: Number of samples without a score, which have the mean weight.
        surplus: Number of scores without a sample.
    """

    count: int
    mean: float
    std: float
    min: float
    max: float
    quantiles: Mapping[str, float]
    effective_share: float
    share_above_hundredth: float
    histogram: Sequence[int]
    missing: int = 0
    surplus: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return dataclasses.asdict(self)

    def summary(self) -> str:
        """One paragraph of text, with a warning about collapsed or nearly constant weights."""
        q = self.quantiles
        sentences = [
            f"Weights of {self.count:,} training samples: mean {self.mean:.3g}, standard deviation "
            f"{self.std:.3g}, from {self.min:.3g} to {self.max:.3g}; median {q['50']:.3g}, 90 % "
            f"between {q['5']:.3g} and {q['95']:.3g}.",
            f"Effective sample size {self.effective_share:.1%}; "
            f"{self.share_above_hundredth:.1%} of the weights are above {NEGLIGIBLE}.",
        ]
        if self.missing:
            sentences.append(f"Samples without a score, with the mean weight: {self.missing:,}.")
        if self.surplus:
            sentences.append(f"Scores without a sample: {self.surplus:,}.")
        return " ".join(sentences + self._warnings())

    def _warnings(self) -> list[str]:
        """At most one warning: collapsed weights may be nearly constant too."""
        if self.share_above_hundredth < COLLAPSED:
            return [
                f"Warning: the weights have collapsed: {self.share_above_hundredth:.2%} of the "
                f"samples are above {NEGLIGIBLE}, so nearly all are trained as if alpha were 0. "
                'Use regulariser.normalise = "minmax", or a larger regulariser.score_temperature.'
            ]
        if self.std < NEARLY_CONSTANT * self.mean:
            return [
                "Warning: the weights are nearly constant (coefficient of variation "
                f"{self.std / self.mean:.3f}), so difficulty makes almost no difference. Use "
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

    The paper uses raw scores r. In a feature space with many dimensions these differ by hundreds,
    so that all but a few weights become 0. Hence scores are normalised first.

    Args:
        scores: Finite scores, larger is harder. Shape (samples,).
        normalise: "minmax" maps the smallest score to 0 and the largest to 1; "zscore" maps the
            mean to 0 and one standard deviation to 1; "per_dimension" divides by `dim`; "none" is
            the paper's. "minmax" and "zscore" make equal scores 0.
        score_temperature: T, above 0; smaller makes weights more peaked.
        winsorise: Fraction of scores at either end, in [0, 0.5), that "minmax" and "zscore" first
            clip to the next score.

    Returns:
        Weights in (0, 1), in the order of the scores; instead of 0 or 1 by rounding they are the
        nearest numbers of float64 in between. Float64 of shape (samples,).

    Raises:
        ConfigError: An option is out of range, or "per_dimension" lacks `dim`.
        TrainingError: There are no scores, or some are not finite.
    """
    if not score_temperature > 0 or not c >= 0:
        raise ConfigError(
            f"score_temperature {score_temperature} must be above 0, and c {c} zero or more",
            parameter="score_temperature" if not score_temperature > 0 else "c",
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
    """Computes the statistics of weights.

    Args:
        weights: Weights in (0, 1), at least one. Shape (samples,).
        missing: Number of samples without a score.
        surplus: Number of scores without a sample.
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
        histogram=np.histogram(values, HISTOGRAM_BINS, (0, 1))[0].tolist(),
        missing=missing,
        surplus=surplus,
    )


def _check_scores(scores: Tensor) -> None:
    if scores.ndim != 1 or not len(scores):
        raise TrainingError(
            f"weights cannot be made from scores of shape {tuple(scores.shape)}",
            "give one score per sample, in one dimension, and at least one sample",
        )
    not_finite = int((~scores.isfinite()).sum())
    if not_finite:
        raise TrainingError(
            f"{not_finite:,} of {len(scores):,} scores are NaN or infinite",
            "score again, or choose another column",
        )


def _normalised(scores: Tensor, normalise: Normalise, winsorise: float, dim: int | None) -> Tensor:
    match normalise:
        case "minmax":
            return _between_0_and_1(_winsorised(scores, winsorise))
        case "zscore":
            # An intermediate map to [0, 1] does not change the result and avoids overflow.
            r = _between_0_and_1(_winsorised(scores, winsorise))
            return (r - r.mean()) / r.std(correction=0) if r.any() else r
        case "per_dimension":
            if dim is None or dim < 1:
                raise ConfigError(
                    f'normalise = "per_dimension" divides by the dimension of the features, and '
                    f"{dim} is not a dimension",
                    "give a dimension of 1 or more, or choose another normalise",
                )
            return scores / dim
        case "none":
            return scores
    raise ConfigError(
        f"there is no normalise {normalise!r}",
        "choose 'minmax', 'per_dimension', 'zscore' or 'none'",
    )


def _winsorised(scores: Tensor, fraction: float) -> Tensor:
    """Clips a fraction of the scores at either end to the next score."""
    if not 0 <= 2 * fraction < 1:
        raise ConfigError(
            f"winsorise {fraction} must be 0 or more and below 0.5", parameter="winsorise"
        )
    clipped = math.floor(fraction * len(scores) + 1e-9)  # 0.29 x 100 is 28.999... in float64
    ordered = scores.sort().values
    return scores.clamp(ordered[clipped], ordered[-1 - clipped])


def _between_0_and_1(scores: Tensor) -> Tensor:
    """Maps the smallest score to 0 and the largest to 1; equal scores to 0."""
    scores = scores / scores.abs().max().clamp_min(1)  # else the range may overflow
    low, high = scores.aminmax()
    return (scores - low) / (high - low) if high > low else torch.zeros_like(scores)
