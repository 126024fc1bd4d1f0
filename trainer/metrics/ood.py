"""Detection of out-of-distribution (OOD) samples by the logits of a classifier.

OOD samples are the positives, and larger scores mean more likely OOD. Only `aupr_id` and
`fpr_at_95_tpr_id` reverse both, because papers report them too.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.predictions import (
    as_array,
    check_logits,
    confidence,
    entropy,
    free_energy,
)
from trainer.metrics.ranking import Convention, RankedGroups, ranked_groups


@dataclass(frozen=True)
class OodDetection:
    """How well a score separates OOD samples from in-distribution (ID) samples.

    Attributes:
        auroc: Probability that an OOD sample scores above an ID sample.
        aupr_ood: Average precision with OOD samples as the positives.
        aupr_id: Average precision with ID samples as the positives and the score reversed.
        fpr_at_95_tpr: Fraction of ID samples above the threshold that detects 95 % of the OOD
            samples.
        fpr_at_95_tpr_id: Fraction of OOD samples below the threshold that keeps 95 % of the ID
            samples, as in table 4 of Cui et al. (2023).
    """

    auroc: float
    aupr_ood: float
    aupr_id: float
    fpr_at_95_tpr: float
    fpr_at_95_tpr_id: float


def _minus_confidence(logits: Tensor) -> Tensor:
    return -confidence(logits)


def _minus_max_logit(logits: Tensor) -> Tensor:
    check_logits(logits)
    return -torch.from_numpy(as_array(logits).max(axis=1)).double()


OOD_SCORES = {
    "msp": _minus_confidence,
    "entropy": entropy,
    "energy": free_energy,
    "max_logit": _minus_max_logit,
}
"""Scores by logits."""


def ood_score(logits: Tensor, by: str) -> Tensor:
    """The OOD score of every sample; larger is more likely OOD.

    Args:
        logits: Shape (samples, classes).
        by: A key of OOD_SCORES: minus the largest probability, the entropy, the free energy, or
            minus the largest logit.

    Returns:
        Float64. Shape (samples,).

    Raises:
        MetricError: `by` is unknown, or logits are invalid.
    """
    if by not in OOD_SCORES:
        raise MetricError(f"OOD score {by!r} is unknown", f"give one of {', '.join(OOD_SCORES)}")
    return OOD_SCORES[by](logits)


def scores_of_both(id_logits: Tensor, ood_logits: Tensor, by: str) -> tuple[Tensor, Tensor]:
    """`ood_score` of ID and of OOD samples, computed together.

    With ties joined among each kind alone, samples of both whose confidence is 1 but for rounding
    would be ranked.
    """
    scores = ood_score(torch.cat([id_logits.cpu(), ood_logits.cpu()]), by)
    return scores[: len(id_logits)], scores[len(id_logits) :]


def ood_detection(
    id_logits: Tensor, ood_logits: Tensor, by: str = "msp", convention: Convention = "first"
) -> OodDetection:
    """Computes how well logits separate OOD samples from in-distribution samples.

    Args:
        id_logits: Logits of ID samples. Shape (samples, classes).
        ood_logits: Logits of OOD samples. Shape (other samples, classes).
        by: A key of OOD_SCORES.
        convention: Choice of the threshold for 95 %, as in `ranking.fpr_at_95_tpr`.

    Raises:
        MetricError: `by` is unknown, or logits are invalid.
    """
    return detection_by_score(
        *joined_scores(*scores_of_both(id_logits, ood_logits, by)), convention
    )


def joined_scores(id_scores: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of ID samples followed by those of OOD samples, and which are of OOD samples.

    Rows of logits are joined likewise. Each of the result has as many rows as both together.
    """
    scores = torch.cat([id_scores, ood_scores])
    return scores, torch.arange(len(scores)) >= len(id_scores)


def detection_by_score(
    scores: Tensor, is_ood: Tensor, convention: Convention = "first"
) -> OodDetection:
    """Computes how well any score separates OOD from ID samples, such as a Mahalanobis distance.

    Args:
        scores: OOD scores, larger is more likely OOD. Shape (samples,).
        is_ood: True or 1 for an OOD sample. Shape (samples,).
        convention: As in `ood_detection`.

    Raises:
        MetricError: All samples are ID or all are OOD, scores are NaN, or shapes differ.
    """
    rates = ood_rates(ranked_groups(scores, is_ood), convention)
    return OodDetection(*map(float, rates))


def ood_rates(
    groups: RankedGroups, convention: Convention = "first"
) -> tuple[NDArray[np.float64], ...]:
    """The numbers of `OodDetection` of rankings with the OOD samples as the hits, in their order.

    Each of the shape of the rankings.
    """
    ours, theirs = groups, groups.reversed
    fprs = (each.fpr_at_95_tpr(convention) for each in (ours, theirs))
    return (ours.auroc, ours.aupr, theirs.aupr, *fprs)
