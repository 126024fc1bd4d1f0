"""Weighted calibration errors, for bins of equal width, of equal mass, and of every class."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from trainer.metrics.calibration import NUM_BINS, bin_of
from trainer.metrics.predictions import as_array, centred_blocks, confidence_and_correct
from trainer.metrics.weighted.statistic import Counts, Statistic, Values

EQUAL_WIDTH_NAMES = ("ece", "l2_ece", "mce")
EQUAL_MASS_NAMES = ("adaptive_ece",)
CLASSWISE_NAMES = ("classwise_ece",)


def weighted_equal_width(logits: Tensor, targets: Tensor) -> Statistic:
    """Prepares the metrics of EQUAL_WIDTH_NAMES; see `weighted_metrics`."""
    confidence, correct = confidence_and_correct(logits, targets)
    return equal_width_statistic(as_array(confidence), as_array(correct), NUM_BINS)


def equal_width_statistic(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], num_bins: int
) -> Statistic:
    """`weighted_equal_width` of confidence and correctness, each of shape (samples,)."""
    num_samples = len(confidence)
    place = (bin_of(confidence, num_bins), np.arange(num_samples))
    shape = (num_bins, num_samples)
    members = csr_array((np.ones(num_samples), place), shape=shape)
    gaps = csr_array((confidence - correct, place), shape=shape)

    def statistic(counts: Counts) -> Values:
        transposed = counts.T
        sizes, excess = members @ transposed, gaps @ transposed
        gap = np.abs(excess) / np.maximum(sizes, 1)
        totals = sizes.sum(axis=0)
        return {
            "ece": np.abs(excess).sum(axis=0) / totals,
            "l2_ece": np.sqrt((sizes * gap**2).sum(axis=0) / totals),
            "mce": gap.max(axis=0),
        }

    return statistic


def weighted_equal_mass(logits: Tensor, targets: Tensor) -> Statistic:
    """Prepares the metrics of EQUAL_MASS_NAMES; see `weighted_metrics`."""
    confidence, correct = (as_array(each) for each in confidence_and_correct(logits, targets))
    order = np.argsort(confidence, kind="stable")
    gaps = (confidence - correct)[order]

    def statistic(counts: Counts) -> Values:
        values = [_equal_mass_ece(row[order], gaps) for row in counts]
        return {"adaptive_ece": np.array(values)}

    return statistic


def weighted_classwise(logits: Tensor, targets: Tensor) -> Statistic:
    """Prepares the metrics of CLASSWISE_NAMES; see `weighted_metrics`.

    As in `classwise_ece`, only the probabilities outside the first bin are sorted into bins.
    """
    num_samples, num_classes = logits.shape
    numbers = as_array(targets).astype(np.int64)
    probabilities = np.concatenate(
        [block.softmax(dim=1).numpy() for _, block in centred_blocks(logits)]
    )
    rows, columns = np.nonzero(probabilities > 1 / NUM_BINS)
    large = probabilities[rows, columns]
    samples = np.arange(num_samples)
    own_bins = bin_of(probabilities[samples, numbers], NUM_BINS)
    cells = np.r_[
        columns * NUM_BINS + bin_of(large, NUM_BINS),
        columns * NUM_BINS,
        numbers * NUM_BINS + own_bins,
    ]
    binned = csr_array(
        (np.r_[large, -large, -np.ones(num_samples)], (cells, np.r_[rows, rows, samples])),
        shape=(num_classes * NUM_BINS, num_samples),
    )

    def statistic(counts: Counts) -> Values:
        excess = (binned @ counts.T).T.reshape(len(counts), num_classes, NUM_BINS)
        excess[:, :, 0] += counts @ probabilities
        total = np.abs(excess).sum(axis=(1, 2))
        return {"classwise_ece": total / (num_classes * counts.sum(axis=1))}

    return statistic


def _equal_mass_ece(counts: NDArray[np.float64], gaps: NDArray[np.float64]) -> float:
    """Adaptive ECE of gaps in ascending order of confidence, one of which may span two bins."""
    ends, sums = counts.cumsum(), (counts * gaps).cumsum()
    total = int(ends[-1])
    sizes = np.full(NUM_BINS, total // NUM_BINS)
    sizes[: total % NUM_BINS] += 1
    edges = sizes.cumsum()
    # The sample at an edge; of its copies, those behind the edge belong to the next bin.
    last = np.searchsorted(ends, edges, side="left")
    at_edges = sums[last] - (ends[last] - edges) * gaps[last]
    return float(np.abs(np.diff(at_edges, prepend=0.0)).sum() / total)
