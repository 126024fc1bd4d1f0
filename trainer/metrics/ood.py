"""Whether a classifier tells inputs of another kind (out of distribution, OOD) from its own.

OOD samples are the positives, and every score is larger for what looks more OOD. That holds in
this whole file; `aupr_id` alone turns both around, because papers report it too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.errors import MetricError
from trainer.metrics.predictions import as_array, check_logits, confidence, entropy
from trainer.metrics.ranking import Convention, aupr, auroc, fpr_at_95_tpr


@dataclass(frozen=True)
class OodDetection:
    """How well a score tells OOD samples from those in distribution (ID).

    Attributes:
        auroc: Chance that an OOD sample scores above an ID one.
        aupr_ood: Average precision with OOD samples as the positives.
        aupr_id: Average precision with ID samples as the positives and the score reversed.
        fpr_at_95_tpr: Share of ID samples taken for OOD by the threshold that finds 95 % of
            the OOD ones.
    """

    auroc: float
    aupr_ood: float
    aupr_id: float
    fpr_at_95_tpr: float


def _minus_confidence(logits: Tensor) -> Tensor:
    return -confidence(logits)


def _minus_max_logit(logits: Tensor) -> Tensor:
    check_logits(logits)
    return -torch.from_numpy(as_array(logits).max(axis=1)).double()


OOD_SCORES = {"msp": _minus_confidence, "entropy": entropy, "max_logit": _minus_max_logit}


def ood_score(logits: Tensor, by: str) -> Tensor:
    """How unlike the training data every sample looks; larger = more OOD.

    Args:
        logits: Shape (samples, classes).
        by: A key of OOD_SCORES: minus the largest probability, the entropy, or minus the
            largest logit.

    Returns:
        Float64. Shape (samples,).

    Raises:
        MetricError: Unknown `by`, or unusable logits.
    """
    if by not in OOD_SCORES:
        raise MetricError(f"OOD score {by!r} is unknown; give one of {', '.join(OOD_SCORES)}")
    return OOD_SCORES[by](logits)


def ood_detection(
    id_logits: Tensor, ood_logits: Tensor, by: str = "msp", convention: Convention = "first"
) -> OodDetection:
    """How well a classifier's own logits tell OOD samples from those in distribution.

    Args:
        id_logits: Of the data the classifier was made for. Shape (samples, classes).
        ood_logits: Of other data. Shape (other samples, classes).
        by: A key of OOD_SCORES.
        convention: Which threshold stands for 95 %, as in `ranking.fpr_at_95_tpr`.

    Raises:
        MetricError: Unknown `by`, or unusable logits.
    """
    scores = torch.cat([ood_score(id_logits, by), ood_score(ood_logits, by)])
    is_ood = torch.arange(len(scores)) >= len(id_logits)
    return detection_by_score(scores, is_ood, convention)


def detection_by_score(
    scores: Tensor, is_ood: Tensor, convention: Convention = "first"
) -> OodDetection:
    """The same for any score, a Mahalanobis distance for instance.

    Args:
        scores: Larger = more OOD. Shape (samples,).
        is_ood: True or 1 for an OOD sample. Shape (samples,).
        convention: As in `ood_detection`.

    Raises:
        MetricError: Only ID or only OOD samples, NaN scores, or shapes that differ.
    """
    is_ood = is_ood.bool()
    return OodDetection(
        auroc=auroc(scores, is_ood),
        aupr_ood=aupr(scores, is_ood),
        aupr_id=aupr(-scores.double(), ~is_ood),
        fpr_at_95_tpr=fpr_at_95_tpr(scores, is_ood, convention),
    )
