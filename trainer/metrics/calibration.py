"""Calibration: whether a confidence of 80 % means that four predictions in five are correct.

Equal-width bins are closed on the right, (l, u], as in the code of the focal-loss papers; a
confidence of exactly 0 joins the first bin and one of exactly 1 the last. netcal and torchmetrics
close them on the left, and torchmetrics gives confidence 1 a bin of its own, which changes values
only where confidences lie exactly on an edge. Edges are 1/bins, 2/bins, ... in float64.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.predictions import (
    NUMBERS_PER_BLOCK,
    ROUNDING,
    as_array,
    centred_blocks,
    check_predictions,
    confidence_and_correct,
)

NUM_BINS = 15
"""Number of bins in all papers compared here."""

SURE = 0.99

SINGLE_ROUNDING = 8 * float(np.finfo(np.float32).eps)
"""As `ROUNDING`, of probabilities in single precision, such as shares of votes."""


@dataclass(frozen=True)
class ReliabilityBins:
    """Samples grouped by confidence; empty bins hold zeros.

    Attributes:
        lower: Lower edges. Shape (bins,).
        upper: Upper edges. Shape (bins,).
        counts: Number of samples. Shape (bins,).
        confidences: Mean confidence. Shape (bins,).
        accuracies: Fraction of correct samples. Shape (bins,).
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    counts: NDArray[np.int64]
    confidences: NDArray[np.float64]
    accuracies: NDArray[np.float64]

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Mean confidence minus accuracy; above 0 where over-confident. Shape (bins,)."""
        return self.confidences - self.accuracies

    @property
    def mean_gap(self) -> float:
        """Mean absolute gap, weighted by the number of samples: the ECE."""
        return float(np.average(np.abs(self.gaps), weights=self.counts))

    @property
    def root_mean_square_gap(self) -> float:
        """Root of the mean squared gap, weighted by the number of samples: the L2-ECE."""
        return float(np.sqrt(np.average(self.gaps**2, weights=self.counts)))

    @property
    def largest_gap(self) -> float:
        """Largest absolute gap of a bin: the MCE."""
        return float(np.abs(self.gaps).max())


@dataclass(frozen=True)
class SureSamples:
    """The samples with confidence 0.99 or more (S99).

    Attributes:
        share: Fraction of all samples.
        accuracy: Accuracy of these samples; NaN where there are none.
    """

    share: float
    accuracy: float


def ece(logits: Tensor, targets: Tensor, num_bins: int = NUM_BINS) -> float:
    """Expected calibration error over bins of equal width; a fraction in [0, 1].

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        num_bins: Number of bins, at least one.

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, or a target is not
            one of the classes.
    """
    return equal_width_bins(*confidence_and_correct(logits, targets), num_bins).mean_gap


def l2_ece(logits: Tensor, targets: Tensor, num_bins: int = NUM_BINS) -> float:
    """Root mean square calibration error over bins of equal width, at least the ECE.

    The plain estimate, which is biased upwards like the ECE. Arguments and errors as in `ece`.
    """
    return equal_width_bins(*confidence_and_correct(logits, targets), num_bins).root_mean_square_gap


def mce(logits: Tensor, targets: Tensor, num_bins: int = NUM_BINS) -> float:
    """Maximum calibration error over bins of equal width; arguments and errors as in `ece`."""
    return equal_width_bins(*confidence_and_correct(logits, targets), num_bins).largest_gap


def adaptive_ece(logits: Tensor, targets: Tensor, num_bins: int = NUM_BINS) -> float:
    """Expected calibration error over bins of equal mass, which the difficulty paper calls ECE.

    Every sample counts. The code of the focal-loss papers excludes the lower edge of the first bin,
    and with it the least confident sample, or all samples where confidences are equal. Arguments
    and errors as in `ece`.
    """
    return equal_mass_bins(*confidence_and_correct(logits, targets), num_bins).mean_gap


def sure_samples(logits: Tensor, targets: Tensor) -> SureSamples:
    """Fraction and accuracy of the samples with confidence 0.99 or more; errors as in `ece`."""
    confidence, correct = confidence_and_correct(logits, targets)
    sure = confidence >= SURE
    accuracy = float(correct[sure].double().mean()) if bool(sure.any()) else float("nan")
    return SureSamples(share=float(sure.double().mean()), accuracy=accuracy)


def equal_width_bins(
    confidence: Tensor, correct: Tensor, num_bins: int = NUM_BINS
) -> ReliabilityBins:
    """Reliability in bins (l, u] of equal width.

    Args:
        confidence: In [0, 1]. Shape (samples,).
        correct: Whether each prediction is correct. Shape (samples,).
        num_bins: Number of bins, at least one.

    Raises:
        MetricError: There are no samples or no bins, shapes differ, or a confidence is outside
            [0, 1].
    """
    confidences, hits = _checked(confidence, correct, num_bins)
    edges = np.arange(num_bins + 1) / num_bins
    numbers = bin_of(as_array(confidence), num_bins)
    return _bins(confidences, hits, numbers, edges[:-1], edges[1:])


def equal_mass_bins(
    confidence: Tensor, correct: Tensor, num_bins: int = NUM_BINS
) -> ReliabilityBins:
    """Reliability in bins of equal size to within one sample; the first bins are the larger ones.

    Samples of equal confidence on both sides of an edge keep their order, as in torch-uncertainty.
    With fewer samples than bins the last bins are empty. Arguments and errors as in
    `equal_width_bins`.
    """
    confidences, hits = _checked(confidence, correct, num_bins)
    order = np.argsort(confidences, kind="stable")
    counts = np.full(num_bins, len(order) // num_bins)
    counts[: len(order) % num_bins] += 1
    ordered = confidences[order]
    last = np.maximum(counts.cumsum() - 1, 0)
    first = np.minimum(counts.cumsum() - counts, len(order) - 1)
    numbers = np.repeat(np.arange(num_bins), counts)
    return _bins(ordered, hits[order], numbers, ordered[first], ordered[last])


def classwise_ece(logits: Tensor, targets: Tensor, num_bins: int = NUM_BINS) -> float:
    """Mean over all classes of the calibration error of the class's probability.

    Classes without samples count too, as their probability should be zero. The code of the
    focal-loss papers leaves out classes above the largest target, and probabilities of exactly 0,
    which hides the worst mistakes. Arguments and errors as in `ece`.
    """
    check_predictions(logits, targets)
    _check_num_bins(num_bins)
    numbers = as_array(targets).astype(np.int64)
    excess = np.zeros((logits.shape[1], num_bins))
    for rows, block in centred_blocks(logits):
        excess += _excess_of_classes(block.softmax(dim=1).numpy(), numbers[rows], num_bins)
    return float(np.abs(excess).sum() / logits.numel())


def classwise_ece_of_probabilities(
    probabilities: Tensor, targets: Tensor, num_bins: int = NUM_BINS
) -> float:
    """`classwise_ece` of probabilities instead of logits.

    Args:
        probabilities: Probabilities in [0, 1], of any floating dtype. Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        num_bins: Number of bins, at least one.

    Raises:
        MetricError: There are no bins, shapes do not fit together, or a target is not one of the
            classes.
    """
    check_predictions(probabilities, targets)
    _check_num_bins(num_bins)
    values, numbers = as_array(probabilities), as_array(targets).astype(np.int64)
    excess = np.zeros((values.shape[1], num_bins))
    rows_per_block = max(1, NUMBERS_PER_BLOCK // values.shape[1])
    for start in range(0, len(values), rows_per_block):
        rows = slice(start, start + rows_per_block)
        excess += _excess_of_classes(values[rows], numbers[rows], num_bins)
    return float(np.abs(excess).sum() / values.size)


def bin_of(confidences: NDArray[Any], num_bins: int) -> NDArray[np.intp]:
    """Index of the bin (l, u] of equal width of each value; 0 belongs to the first. Same shape.

    A value within rounding error, of its own precision, of an edge is at it.
    """
    rounding = SINGLE_ROUNDING if confidences.dtype == np.float32 else ROUNDING
    # Multiplying and rounding up is faster, but puts some edges, as 15/22, one bin too high.
    edges = np.arange(1, num_bins) / num_bins + rounding
    return np.searchsorted(edges, confidences.astype(np.float64), side="left")


def _excess_of_classes(
    probabilities: NDArray[Any], targets: NDArray[np.int64], num_bins: int
) -> NDArray[np.float64]:
    """Sum of the probabilities of every class minus its samples, by bin. Shape (classes, bins).

    With many classes few probabilities are outside the first bin, since a row sums to 1. Only those
    are sorted into bins; the first bin is the remainder of the sum of the column.
    """
    num_classes = probabilities.shape[1]
    # Slightly below the edge, so that rounding 1/bins to float32 excludes no value.
    large = np.flatnonzero(probabilities > (1 - 1e-6) / num_bins)
    values = probabilities.ravel()[large]
    columns = large % num_classes
    cells = columns * num_bins + bin_of(values, num_bins)
    own = probabilities[np.arange(len(targets)), targets]
    own_cells = targets * num_bins + bin_of(own, num_bins)
    size = num_classes * num_bins
    given = np.bincount(cells, values, size) - np.bincount(own_cells, minlength=size)
    excess: NDArray[np.float64] = given.reshape(num_classes, num_bins).astype(np.float64)
    excess[:, 0] += probabilities.sum(axis=0) - np.bincount(columns, values, num_classes)
    return excess


def _bins(
    confidences: NDArray[np.float64],
    hits: NDArray[np.float64],
    numbers: NDArray[np.intp],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> ReliabilityBins:
    counts = np.bincount(numbers, minlength=len(lower))
    divisor = np.maximum(counts, 1)
    return ReliabilityBins(
        lower=lower,
        upper=upper,
        counts=counts,
        confidences=np.bincount(numbers, confidences, len(lower)) / divisor,
        accuracies=np.bincount(numbers, hits, len(lower)) / divisor,
    )


def _check_num_bins(num_bins: int) -> None:
    if num_bins < 1:
        raise MetricError(f"{num_bins} bins hold no sample", "give at least 1")


def _checked(
    confidence: Tensor, correct: Tensor, num_bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    confidences = as_array(confidence).astype(np.float64)
    hits = as_array(correct).astype(np.float64)
    _check_num_bins(num_bins)
    if confidences.ndim != 1 or confidences.shape != hits.shape or not len(hits):
        raise MetricError(
            f"confidence of shape {confidences.shape} beside correctness of shape {hits.shape}",
            "give one of each per sample, and at least one sample",
        )
    if not (confidences.min() >= 0 and confidences.max() <= 1):
        raise MetricError(
            f"confidence from {confidences.min():g} to {confidences.max():g}",
            "give probabilities in [0, 1], such as those of softmax",
        )
    return confidences, hits
