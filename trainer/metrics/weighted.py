"""Metrics of weighted samples, where a sample that counts k times is as good as k equal samples.

What does not depend on the counts, such as the order of the samples, is computed once; evaluating
a resample of the bootstrap then needs no sorting and no logits.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from trainer.metrics.calibration import NUM_BINS, SURE, bin_of
from trainer.metrics.ood import OodDetection, ood_rates
from trainer.metrics.predictions import as_array, centred_blocks, confidence_and_correct
from trainer.metrics.proper_scores import brier_score_per_sample, in_top_k, nll_per_sample
from trainer.metrics.ranking import RankedGroups
from trainer.metrics.selective import (
    CERTAINTIES,
    MisclassificationDetection,
    accuracies_of_kept,
    augrc_of_errors,
    aurc_of_errors,
    certainty_and_correct,
    e_aurc_of_errors,
    misclassification_rates,
)
from trainer.metrics.smooth_calibration import fixed_point, residuals_on_grid

Counts = NDArray[np.float64]
"""How often each sample counts, in whole numbers. Shape (resamples, samples)."""

Values = dict[str, NDArray[np.float64]]
"""Metrics by name, NaN where one has no value. Each of shape (resamples,)."""

Statistic = Callable[[Counts], Values]


MEAN_NAMES = ("accuracy", "top_5_accuracy", "nll", "brier_score", "s99_share", "s99_accuracy")


def weighted_means(logits: Tensor, targets: Tensor) -> Statistic:
    """Prepares the metrics of MEAN_NAMES; see `weighted_metrics`."""
    confidence, correct = (as_array(each) for each in confidence_and_correct(logits, targets))
    sure = confidence >= SURE
    numbers = {
        "accuracy": correct,
        "top_5_accuracy": as_array(in_top_k(logits, targets, k=5)),
        "nll": as_array(nll_per_sample(logits, targets)),
        "brier_score": as_array(brier_score_per_sample(logits, targets)),
        "s99_share": sure,
        "s99_accuracy": sure & correct,
    }

    def statistic(counts: Counts) -> Values:
        values = {name: weighted_mean(counts, each) for name, each in numbers.items()}
        share = values["s99_share"]
        values["s99_accuracy"] = np.divide(
            values["s99_accuracy"], share, out=np.full(len(counts), np.nan), where=share > 0
        )
        return values

    return statistic


def weighted_mean(counts: Counts, numbers: NDArray[np.generic]) -> NDArray[np.float64]:
    """Weighted mean of one number per sample; NaN where a number is infinite. (resamples,)."""
    values = numbers.astype(np.float64)
    if not np.isfinite(values).all():
        return np.full(len(counts), np.nan)
    means: NDArray[np.float64] = counts @ values / counts.sum(axis=1)
    return means


EQUAL_WIDTH_NAMES = ("ece", "l2_ece", "mce")
EQUAL_MASS_NAMES = ("adaptive_ece",)
SMOOTH_NAMES = ("smooth_ece",)
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
        return {"adaptive_ece": _equal_mass_ece(counts[:, order], gaps)}

    return statistic


def weighted_smooth(logits: Tensor, targets: Tensor) -> Statistic:
    """Prepares the metrics of SMOOTH_NAMES; see `weighted_metrics`."""
    residuals = residuals_on_grid(*map(as_array, confidence_and_correct(logits, targets)))

    def statistic(counts: Counts) -> Values:
        masses = (residuals @ counts.T).T / counts.sum(axis=1, keepdims=True)
        return {"smooth_ece": fixed_point(masses)}

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


def _equal_mass_ece(counts: Counts, gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adaptive ECE of gaps in ascending order of confidence, one of which may span two bins."""
    ends, sums = counts.cumsum(axis=1), (counts * gaps).cumsum(axis=1)
    total = int(ends[0, -1])
    sizes = np.full(NUM_BINS, total // NUM_BINS)
    sizes[: total % NUM_BINS] += 1
    edges = sizes.cumsum()
    # The sample at an edge; of its copies, those behind the edge belong to the next bin.
    last = np.stack([np.searchsorted(row, edges, side="left") for row in ends])
    behind = np.take_along_axis(ends, last, axis=1) - edges
    at_edges = np.take_along_axis(sums, last, axis=1) - behind * gaps[last]
    total_gap: NDArray[np.float64] = np.abs(np.diff(at_edges, axis=1, prepend=0.0)).sum(axis=1)
    return total_gap / total


REJECTED_SHARES = (0.1, 0.2, 0.5)
"""Shares of the least certain samples after whose rejection the accuracy is reported."""

DETECTION_NAMES = tuple(MisclassificationDetection.__annotations__)


def ranking_names(by: str) -> tuple[str, ...]:
    """Names of the metrics by one of CERTAINTIES."""
    return (
        *(f"misclassification_{name}_{by}" for name in DETECTION_NAMES),
        f"aurc_{by}",
        f"e_aurc_{by}",
        f"augrc_{by}",
        *(f"accuracy_rejecting_{round(100 * share)}_percent_{by}" for share in REJECTED_SHARES),
    )


@dataclass(frozen=True)
class _Ranking:
    """Samples in descending order of a score; `starts` are the first places of equal scores."""

    order: NDArray[np.intp]
    positive: NDArray[np.float64]
    starts: NDArray[np.intp]

    def groups(self, counts: Counts) -> RankedGroups:
        """The groups that any sample is in, of each resample."""
        sizes = counts[:, self.order]
        hits = sizes * self.positive
        if len(self.starts) < sizes.shape[1]:
            sizes, hits = (np.add.reduceat(each, self.starts, axis=1) for each in (sizes, hits))
        drawn = sizes > 0
        numbers = drawn.sum(axis=1)
        places = np.arange(numbers.max()) < numbers[:, None]

        def in_front(values: NDArray[np.float64]) -> NDArray[np.float64]:
            moved = np.zeros(places.shape)
            moved[places] = values[drawn]
            return moved

        return RankedGroups(in_front(hits), in_front(sizes))


def weighted_ranking(logits: Tensor, targets: Tensor, by: str) -> Statistic:
    """Prepares the metrics of `ranking_names(by)`; see `weighted_metrics`."""
    ranking = _rank(*certainty_and_correct(logits, targets, by))

    def statistic(counts: Counts) -> Values:
        return _by_blocks(
            ranking_names(by), counts, lambda block: _ranking_metrics(ranking.groups(block))
        )

    return statistic


def weighted_ood(scores: Tensor, is_ood: Tensor) -> Statistic:
    """Prepares OOD detection by scores, with counts of their samples; see `weighted_metrics`."""
    ranking = _rank(scores, is_ood)

    def statistic(counts: Counts) -> Values:
        return _by_blocks(
            OodDetection.__annotations__, counts, lambda block: ood_rates(ranking.groups(block))
        )

    return statistic


COUNTS_AT_ONCE = 1 << 14
"""Number of counts whose rankings are evaluated at once: a dozen arrays then fit into a cache."""


def _by_blocks(
    names: Iterable[str],
    counts: Counts,
    compute: Callable[[Counts], Sequence[NDArray[np.float64]]],
) -> Values:
    """Named metrics that are computed for some resamples at a time."""
    rows = max(1, COUNTS_AT_ONCE // counts.shape[1])
    blocks = [compute(counts[start : start + rows]) for start in range(0, len(counts), rows)]
    return {
        name: np.concatenate(values)
        for name, values in zip(names, zip(*blocks, strict=True), strict=True)
    }


def _rank(scores: Tensor, positive: Tensor) -> _Ranking:
    values = as_array(scores)
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return _Ranking(order, as_array(positive)[order].astype(np.float64), starts)


def _ranking_metrics(groups: RankedGroups) -> list[NDArray[np.float64]]:
    """The metrics in the order of `ranking_names`; detection is NaN without both kinds."""
    hits, sizes = groups.hits, groups.sizes
    shares = (groups.misses / np.maximum(sizes, 1)).ravel()
    errors = np.repeat(shares, sizes.ravel().astype(np.intp)).reshape(len(sizes), -1)
    correct = hits.sum(axis=1)
    both = (correct > 0) & (correct < errors.shape[1])
    detection = np.full((len(DETECTION_NAMES), len(sizes)), np.nan)
    detection[:, both] = misclassification_rates(RankedGroups(hits[both], sizes[both]))
    return [
        *detection,
        aurc_of_errors(errors),
        e_aurc_of_errors(errors),
        augrc_of_errors(errors),
        *accuracies_of_kept(errors, np.asarray(REJECTED_SHARES)).T,
    ]


FAMILIES: tuple[tuple[tuple[str, ...], Callable[[Tensor, Tensor], Statistic]], ...] = (
    (MEAN_NAMES, weighted_means),
    (EQUAL_WIDTH_NAMES, weighted_equal_width),
    (EQUAL_MASS_NAMES, weighted_equal_mass),
    (SMOOTH_NAMES, weighted_smooth),
    (CLASSWISE_NAMES, weighted_classwise),
    *((ranking_names(by), partial(weighted_ranking, by=by)) for by in CERTAINTIES),
)
"""Names of the metrics that are computed together, and what computes them."""

WEIGHTED_METRICS = tuple(name for names, _ in FAMILIES for name in names)
"""Names of all metrics, as in the record of a model."""


def weighted_metrics(logits: Tensor, targets: Tensor, metrics: Collection[str]) -> Statistic:
    """Prepares metrics for any counts of the samples.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        metrics: Names out of WEIGHTED_METRICS.

    Returns:
        A function of counts, float64 of shape (resamples, samples), whose rows each have the same
        sum; it returns each metric by name, NaN where it has no value. Shape (resamples,).

    Raises:
        MetricError: Shapes do not fit together, logits are not finite, or a target is not one of
            the classes.
    """
    chosen = set(metrics)
    statistics = [build(logits, targets) for names, build in FAMILIES if chosen.intersection(names)]

    def statistic(counts: Counts) -> Values:
        values = {name: value for each in statistics for name, value in each(counts).items()}
        return {name: value for name, value in values.items() if name in chosen}

    return statistic
