"""Metrics of weighted samples, where a sample that counts k times is as good as k equal samples.

What does not depend on the counts, such as the order of the samples, is computed once; evaluating
a resample of the bootstrap then needs no sorting and no logits.
"""

from collections.abc import Callable, Collection
from functools import partial

from torch import Tensor

from trainer.metrics.selective import CERTAINTIES
from trainer.metrics.weighted import calibration, means, ranking
from trainer.metrics.weighted.statistic import Counts, Statistic, Values

FAMILIES: tuple[tuple[tuple[str, ...], Callable[[Tensor, Tensor], Statistic]], ...] = (
    (means.NAMES, means.weighted_means),
    (calibration.EQUAL_WIDTH_NAMES, calibration.weighted_equal_width),
    (calibration.EQUAL_MASS_NAMES, calibration.weighted_equal_mass),
    (calibration.CLASSWISE_NAMES, calibration.weighted_classwise),
    *((ranking.names(by), partial(ranking.weighted_ranking, by=by)) for by in CERTAINTIES),
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
