"""Whether a classifier knows when it is wrong: finding its errors, and leaving them out.

Certainty is the largest probability ("msp") or minus the entropy ("entropy"); larger = more likely
right. Samples of equal certainty share their errors evenly, so that nothing depends on the order
of the samples; references that keep the order of the file differ where there are ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from torch import Tensor

from difficulty_service.errors import MetricError
from trainer.metrics.predictions import as_array, confidence, confidence_and_correct, entropy
from trainer.metrics.ranking import Convention, aupr, auroc, fpr_at_95_tpr

REJECTED_SHARES = tuple(tenths / 10 for tenths in range(10))


def _minus_entropy(logits: Tensor) -> Tensor:
    return -entropy(logits)


CERTAINTIES = {"msp": confidence, "entropy": _minus_entropy}


@dataclass(frozen=True)
class MisclassificationDetection:
    """How well certainty tells right predictions from wrong ones.

    Attributes:
        auroc: Chance that a right prediction is more certain than a wrong one.
        aupr_success: Average precision with right predictions as the positives.
        aupr_error: Average precision with wrong predictions as the positives.
        fpr_at_95_tpr: Share of wrong predictions kept by the threshold that keeps 95 % of the
            right ones, which are the positives.
    """

    auroc: float
    aupr_success: float
    aupr_error: float
    fpr_at_95_tpr: float


@dataclass(frozen=True)
class RejectionCurve:
    """Accuracy of what remains when the least certain samples are left to a person.

    Attributes:
        rejected: Share of samples left out. Shape (points,).
        accuracies: Of the samples that remain. Shape (points,).
    """

    rejected: NDArray[np.float64]
    accuracies: NDArray[np.float64]


def misclassification_detection(
    logits: Tensor, targets: Tensor, by: str = "msp", convention: Convention = "first"
) -> MisclassificationDetection:
    """How well certainty tells right predictions from wrong ones.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        by: A key of CERTAINTIES.
        convention: Which threshold stands for 95 %, as in `ranking.fpr_at_95_tpr`; "nearest"
            is that of the code of correctness ranking (CRL).

    Raises:
        MetricError: All predictions right or all wrong, unknown `by`, unusable logits, or a target
            is not one of the classes.
    """
    certainty, correct = certainty_and_correct(logits, targets, by)
    return MisclassificationDetection(
        auroc=auroc(certainty, correct),
        aupr_success=aupr(certainty, correct),
        aupr_error=aupr(-certainty, ~correct),
        fpr_at_95_tpr=fpr_at_95_tpr(certainty, correct, convention),
    )


def certainty_and_correct(logits: Tensor, targets: Tensor, by: str) -> tuple[Tensor, Tensor]:
    """Certainty, float64, and correctness, bool, of every sample. Each of shape (samples,).

    Raises:
        MetricError: Unknown `by`, unusable logits, or a target is not one of the classes.
    """
    if by not in CERTAINTIES:
        raise MetricError(f"certainty by {by!r} is unknown; give one of {', '.join(CERTAINTIES)}")
    largest, correct = confidence_and_correct(logits, targets)
    return (largest if by == "msp" else CERTAINTIES[by](logits)), correct


def aurc(certainty: Tensor, correct: Tensor) -> float:
    """Area under the risk-coverage curve: the mean error rate over all coverages.

    The mean over the n coverages 1/n, 2/n, ... 1, as in the code of correctness ranking (CRL);
    torch-uncertainty's trapezoid over the same points differs by terms of order 1/n.

    Args:
        certainty: Larger = more likely right. Shape (samples,).
        correct: True where the prediction is right. Shape (samples,).

    Raises:
        MetricError: No samples, NaN certainty, or shapes that differ.
    """
    errors = _errors_from_the_surest(certainty, correct)
    return float((errors.cumsum() / np.arange(1, len(errors) + 1)).mean())


def e_aurc(certainty: Tensor, correct: Tensor) -> float:
    """Excess AURC: above that of the best order, r + (1 - r) ln(1 - r) at error rate r.

    That value is the limit for many samples; a perfect order of few lies slightly off 0.
    Arguments and errors as `aurc`.
    """
    error_rate = 1 - float(as_array(correct).astype(np.float64).mean())
    # xlogy is 0 where everything is wrong; writing the product out gives NaN there.
    best = error_rate + float(xlogy(1 - error_rate, 1 - error_rate))
    return aurc(certainty, correct) - best


def accuracy_over_rejection(
    certainty: Tensor, correct: Tensor, rejected: Sequence[float] = REJECTED_SHARES
) -> RejectionCurve:
    """Accuracy of what remains after rejecting the least certain share of the samples.

    At least one sample always remains; a share of samples that is not whole rounds down.

    Args:
        certainty: Larger = more likely right. Shape (samples,).
        correct: True where the prediction is right. Shape (samples,).
        rejected: Shares to reject, each in [0, 1).

    Raises:
        MetricError: A share outside [0, 1), no samples, NaN certainty, or shapes that differ.
    """
    shares = np.asarray(rejected, dtype=np.float64)
    if not ((shares >= 0) & (shares < 1)).all():
        raise MetricError(f"rejected shares {list(rejected)} must each be in [0, 1)")
    errors = _errors_from_the_surest(certainty, correct)
    # The small number takes 0.29 of 100, 28.999999999999996 in floating point, for the 29 it is.
    kept = len(errors) - np.floor(shares * len(errors) + 1e-9).astype(np.intp)
    return RejectionCurve(rejected=shares, accuracies=1 - errors.cumsum()[kept - 1] / kept)


def _errors_from_the_surest(certainty: Tensor, correct: Tensor) -> NDArray[np.float64]:
    """1 for an error and 0 for a hit, the surest first; equals share theirs. Shape (samples,)."""
    values = as_array(certainty).astype(np.float64)
    errors = 1 - as_array(correct).astype(np.float64)
    if values.ndim != 1 or values.shape != errors.shape or not len(errors):
        raise MetricError(
            f"certainty of shape {values.shape} beside correctness of shape {errors.shape}; "
            f"give one of each per sample, and one sample at least"
        )
    if missing := int(np.isnan(values).sum()):
        raise MetricError(f"certainty of {missing} of {len(values)} samples is NaN; leave them out")
    _, group, counts = np.unique(-values, return_inverse=True, return_counts=True)
    return np.repeat(np.bincount(group, errors) / counts, counts)
