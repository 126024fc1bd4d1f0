"""Misclassification detection and selective prediction by the certainty of predictions.

Certainty is the largest probability ("msp"), minus the entropy ("entropy") or minus the free energy
("energy"); larger is more likely correct. Samples of equal certainty share their errors evenly, so
that results do not depend on the order of the samples; references that keep the order of the file
differ where there are ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.predictions import (
    as_array,
    confidence,
    confidence_and_correct,
    entropy,
    free_energy,
    join_ties,
)
from trainer.metrics.ranking import Convention, RankedGroups, ranked_groups

REJECTED_SHARES = tuple(tenths / 10 for tenths in range(10))


def _minus_entropy(logits: Tensor) -> Tensor:
    return -join_ties(entropy(logits))


def _minus_free_energy(logits: Tensor) -> Tensor:
    return -join_ties(free_energy(logits))


CERTAINTIES = {"msp": confidence, "entropy": _minus_entropy, "energy": _minus_free_energy}


@dataclass(frozen=True)
class MisclassificationDetection:
    """How well certainty separates correct predictions from wrong ones.

    Attributes:
        auroc: Probability that a correct prediction is more certain than a wrong one.
        aupr_success: Average precision with correct predictions as the positives.
        aupr_error: Average precision with wrong predictions as the positives.
        fpr_at_95_tpr: Fraction of wrong predictions above the threshold that keeps 95 % of the
            correct ones, which are the positives.
        fpr_at_95_tpr_crl: The same by the convention "nearest_corner" of `ranking.fpr_at_95_tpr`,
            in which the numbers of the correctness ranking (CRL) paper are.
    """

    auroc: float
    aupr_success: float
    aupr_error: float
    fpr_at_95_tpr: float
    fpr_at_95_tpr_crl: float


@dataclass(frozen=True)
class RejectionCurve:
    """Accuracy of the samples that remain when the least certain ones are rejected.

    Attributes:
        rejected: Fraction of samples rejected. Shape (points,).
        accuracies: Accuracy of the remaining samples. Shape (points,).
    """

    rejected: NDArray[np.float64]
    accuracies: NDArray[np.float64]


def misclassification_detection(
    logits: Tensor, targets: Tensor, by: str = "msp", convention: Convention = "first"
) -> MisclassificationDetection:
    """Computes how well certainty separates correct predictions from wrong ones.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        by: A key of CERTAINTIES.
        convention: Choice of the threshold for 95 %, as in `ranking.fpr_at_95_tpr`.

    Raises:
        MetricError: All predictions are correct or all are wrong, `by` is unknown, logits are
            invalid, or a target is not one of the classes.
    """
    return detection_of_errors(
        ranked_groups(*certainty_and_correct(logits, targets, by)), convention
    )


def detection_of_errors(
    groups: RankedGroups, convention: Convention = "first"
) -> MisclassificationDetection:
    """`misclassification_detection` of samples ranked by certainty, the correct ones as hits."""
    return MisclassificationDetection(*map(float, misclassification_rates(groups, convention)))


def misclassification_rates(
    groups: RankedGroups, convention: Convention = "first"
) -> tuple[NDArray[np.float64], ...]:
    """The numbers of `MisclassificationDetection` of rankings by certainty, in their order.

    Each of the shape of the rankings.
    """
    return (
        groups.auroc,
        groups.aupr,
        groups.reversed.aupr,
        groups.fpr_at_95_tpr(convention),
        groups.fpr_at_95_tpr("nearest_corner"),
    )


def certainty_and_correct(logits: Tensor, targets: Tensor, by: str) -> tuple[Tensor, Tensor]:
    """Certainty, float64, and correctness, bool, of every sample. Each of shape (samples,)."""
    if by not in CERTAINTIES:
        raise MetricError(
            f"certainty by {by!r} is unknown", f"give one of {', '.join(CERTAINTIES)}"
        )
    largest, correct = confidence_and_correct(logits, targets)
    return (largest if by == "msp" else CERTAINTIES[by](logits)), correct


def aurc(certainty: Tensor, correct: Tensor) -> float:
    """Area under the risk-coverage curve: the mean error rate over all coverages.

    The mean over the n coverages 1/n, 2/n, ... 1, as in the code of correctness ranking (CRL);
    torch-uncertainty's trapezoid over the same points differs by terms of order 1/n.

    Args:
        certainty: Certainty, larger is more likely correct. Shape (samples,).
        correct: Whether each prediction is correct. Shape (samples,).

    Raises:
        MetricError: There are no samples, certainty is NaN, or shapes differ.
    """
    return float(aurc_of_errors(_errors_by_certainty(certainty, correct)))


def e_aurc(certainty: Tensor, correct: Tensor) -> float:
    """Excess AURC over the best order, whose AURC is r + (1 - r) ln(1 - r) at error rate r.

    That AURC is the limit for many samples; with few samples a perfect order is slightly off 0.
    Arguments and errors as in `aurc`.
    """
    return float(e_aurc_of_errors(_errors_by_certainty(certainty, correct)))


def augrc(certainty: Tensor, correct: Tensor) -> float:
    """Area under the generalised risk-coverage curve (Traub et al., NeurIPS 2024).

    The generalised risk at a coverage is the fraction of all samples that are both kept and wrong,
    so that its area, at most 1/2, is the risk of an undetected error for a coverage drawn at
    random. It equals (1 - AUROC) a (1 - a) + (1 - a)² / 2 at accuracy a, with the AUROC of
    misclassification detection. The curve starts at (0, 0) and is straight between its points;
    torch-uncertainty starts at the first sample and divides by 1 - 1/n, a difference of order 1/n.
    Arguments and errors as in `aurc`.
    """
    return float(augrc_of_errors(_errors_by_certainty(certainty, correct)))


def aurc_of_errors(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """`aurc` of errors, 1 for a wrong prediction, by descending certainty.

    Shape (...) of errors of shape (..., samples).
    """
    risks = errors.cumsum(axis=-1) / np.arange(1, errors.shape[-1] + 1)
    return risks.mean(axis=-1)


def e_aurc_of_errors(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """`e_aurc` of errors by descending certainty; shapes as in `aurc_of_errors`."""
    error_rate = errors.mean(axis=-1)
    # xlogy is 0 where all predictions are wrong; the product written out would be NaN.
    best = error_rate + xlogy(1 - error_rate, 1 - error_rate)
    return aurc_of_errors(errors) - best


def augrc_of_errors(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """`augrc` of errors by descending certainty, with those of a tie shared.

    Shapes as in `aurc_of_errors`.
    """
    # Each error counts at every larger coverage, and half within its own step.
    coverages = np.arange(errors.shape[-1], 0, -1) - 0.5
    return (errors @ coverages) / errors.shape[-1] ** 2


def accuracy_over_rejection(
    certainty: Tensor, correct: Tensor, rejected: Sequence[float] = REJECTED_SHARES
) -> RejectionCurve:
    """Accuracy of the samples that remain after rejecting the least certain ones.

    At least one sample always remains; the number of rejected samples is rounded down.

    Args:
        certainty: Certainty, larger is more likely correct. Shape (samples,).
        correct: Whether each prediction is correct. Shape (samples,).
        rejected: Fractions to reject, each in [0, 1).

    Raises:
        MetricError: A fraction is outside [0, 1), there are no samples, certainty is NaN, or shapes
            differ.
    """
    fractions = np.asarray(rejected, dtype=np.float64)
    if not ((fractions >= 0) & (fractions < 1)).all():
        raise MetricError(
            f"rejected fractions {list(rejected)} must each be in [0, 1)", parameter="rejected"
        )
    errors = _errors_by_certainty(certainty, correct)
    return RejectionCurve(rejected=fractions, accuracies=accuracies_of_kept(errors, fractions))


def accuracies_of_kept(
    errors: NDArray[np.float64], rejected: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`accuracy_over_rejection` of errors by descending certainty.

    Shape (..., points) of errors of shape (..., samples).
    """
    num_samples = errors.shape[-1]
    # The small number makes 0.29 of 100, 28.999999999999996 in floating point, 29.
    kept = num_samples - np.floor(rejected * num_samples + 1e-9).astype(np.intp)
    accuracies: NDArray[np.float64] = 1 - errors.cumsum(axis=-1)[..., kept - 1] / kept
    return accuracies


def _errors_by_certainty(certainty: Tensor, correct: Tensor) -> NDArray[np.float64]:
    """Errors, 1 for a wrong prediction, by descending certainty, averaged over ties; (samples,)."""
    values = as_array(certainty).astype(np.float64)
    errors = 1 - as_array(correct).astype(np.float64)
    if values.ndim != 1 or values.shape != errors.shape or not len(errors):
        raise MetricError(
            f"certainty of shape {values.shape} beside correctness of shape {errors.shape}",
            "give one of each per sample, and at least one sample",
        )
    if missing := int(np.isnan(values).sum()):
        raise MetricError(
            f"certainty of {missing} of {len(values)} samples is NaN", "leave them out"
        )
    _, group, counts = np.unique(-values, return_inverse=True, return_counts=True)
    return np.repeat(np.bincount(group, errors) / counts, counts)
