"""Intervals of the metrics of runs, and of the differences between runs, by a paired bootstrap.

In every resample, the same test samples are drawn for all runs; runs without test samples share the
draws of each seed's validation samples. A metric is computed for every seed on the samples drawn
and averaged over the seeds. Where there are several seeds, Student's t times the standard error
over the seeds is added: drawing from so few seeds would give intervals that are too narrow. Runs
with the same seeds are paired by them, as a seed gives them the same split, order and initial
parameters; for runs with other seeds the variances are pooled. The intervals are percentiles, of
one metric and one pair at a time, not corrected for several comparisons, and end where the range of
the metric does.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer.metrics.bootstrap import Resampling, resamples
from trainer.metrics.weighted import WEIGHTED_METRICS, weighted_metrics
from trainer.reports.comparison import Comparison, Run, sample_set, seed_predictions
from trainer.run_folder import TEST

HIGHEST = {"nll": math.inf, "brier_score": 2.0}
"""The largest possible values of metrics that are no shares; that of all others is 1.

The smallest is 0 of every metric.
"""


@dataclass(frozen=True)
class ResampledMetric:
    """One metric of all runs at one stage.

    Attributes:
        means: Mean over the seeds of each run in each resample of the test samples; NaN where it
            has no value. Shape (runs, resamples).
        seeds: For each run, the value of every seed that has one, on the test samples themselves.
    """

    means: NDArray[np.float64]
    seeds: Sequence[Mapping[int, float]]


@dataclass(frozen=True)
class ComparisonIntervals:
    """The metrics of all runs in the same resamples.

    Attributes:
        metrics: By stage and metric.
        resampling: Settings of the bootstrap.
    """

    metrics: Mapping[tuple[str, str], ResampledMetric]
    resampling: Resampling

    def interval(self, run: int, stage: str, metric: str) -> tuple[float, float] | None:
        """Interval of a run's mean over its seeds; None where the metric has none.

        Args:
            run: Position of the run in the comparison.
            stage: Key of `record.STAGES`.
            metric: Name of the metric in a record.
        """
        each = self.metrics.get((stage, metric))
        if each is None:
            return None
        interval = self._interval(each.means[run], [each.seeds[run]])
        return _clipped(interval, 0.0, HIGHEST.get(metric, 1.0))

    def difference(
        self, first: int, second: int, stage: str, metric: str
    ) -> tuple[float, float] | None:
        """Interval of the first run's mean minus the second's; arguments as in `interval`."""
        each = self.metrics.get((stage, metric))
        if each is None:
            return None
        seeds = [each.seeds[first], each.seeds[second]]
        interval = self._interval(each.means[first] - each.means[second], seeds)
        largest = HIGHEST.get(metric, 1.0)
        return _clipped(interval, -largest, largest)

    def _interval(
        self, resampled: NDArray[np.float64], seeds: Sequence[Mapping[int, float]]
    ) -> tuple[float, float] | None:
        error, freedom = error_over_seeds(*seeds)
        if error > 0:
            generator = np.random.default_rng(self.resampling.seed)
            resampled = resampled + error * generator.standard_t(freedom, len(resampled))
        defined = resampled[np.isfinite(resampled)]
        if not len(defined):
            return None
        outside = (1 - self.resampling.level) / 2
        low, high = np.quantile(defined, [outside, 1 - outside])
        return float(low), float(high)


def _clipped(
    interval: tuple[float, float] | None, lowest: float, highest: float
) -> tuple[float, float] | None:
    """The part of an interval that is possible: Student's t knows no range of the metric."""
    if interval is None:
        return None
    low, high = (min(max(end, lowest), highest) for end in interval)
    return low, high


def error_over_seeds(*runs: Mapping[int, float]) -> tuple[float, int]:
    """Standard error of a mean over seeds, or of a difference of two, and its degrees of freedom.

    Args:
        runs: Value of each seed of one run, or of two runs to subtract.

    Returns:
        Zeros where no run has two seeds, which say nothing about other seeds.
    """
    if len(runs) == 2 and runs[0].keys() == runs[1].keys():  # noqa: PLR2004 - a difference
        runs = ({seed: value - runs[1][seed] for seed, value in runs[0].items()},)
    freedom = sum(len(run) - 1 for run in runs)
    if freedom < 1 or not all(runs):
        return 0.0, 0
    squares = sum(len(run) * float(np.var(list(run.values()))) for run in runs)
    return math.sqrt(squares / freedom * sum(1 / len(run) for run in runs)), freedom


def resample_comparison(
    comparison: Comparison,
    metrics: Sequence[str],
    resampling: Resampling,
    advance: Callable[[], None] = lambda: None,
) -> ComparisonIntervals:
    """Computes metrics of all runs in the same resamples of the samples they were evaluated on.

    Args:
        comparison: Runs to compare.
        metrics: Names of metrics in a record; those without a bootstrap are left out.
        resampling: Settings of the bootstrap.
        advance: Called after each seed at each stage.

    Raises:
        TrainingError: Predictions are missing or damaged.
    """
    known = [metric for metric in metrics if metric in WEIGHTED_METRICS]
    resampled = {}
    for stage in comparison.stages:
        runs: list[dict[int, dict[str, NDArray[np.float64]]]] = []
        for run in comparison.runs:
            runs.append({})
            for seed in run.records:
                if stage in run.records[seed]:
                    runs[-1][seed] = _resampled_seed(run, seed, stage, known, resampling)
                advance()
        for metric in known:
            seeds = [_values_of(run, stage, metric) for run in comparison.runs]
            nothing = [np.full(resampling.num_resamples, np.nan)]
            means = [
                np.mean([each[seed][metric] for seed in values] or nothing, axis=0)
                for each, values in zip(runs, seeds, strict=True)
            ]
            resampled[stage, metric] = ResampledMetric(np.stack(means), seeds)
    return ComparisonIntervals(resampled, resampling)


def _values_of(run: Run, stage: str, metric: str) -> dict[int, float]:
    """The recorded value of every seed that has one."""
    values = {seed: record.get(stage, {}).get(metric) for seed, record in run.records.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def _resampled_seed(
    run: Run, seed: int, stage: str, metrics: Sequence[str], resampling: Resampling
) -> dict[str, NDArray[np.float64]]:
    """Metrics of one seed in every resample. Each of shape (resamples,)."""
    predictions = seed_predictions(run, seed, stage)
    # Equal draws for equal samples; validation samples of different seeds are different samples.
    samples = sample_set(run, seed)
    offset = 0 if samples == TEST else 1 + seed
    draws = resamples(len(predictions.targets), replace(resampling, seed=resampling.seed + offset))
    statistic = weighted_metrics(predictions.logits, predictions.targets, metrics)
    blocks = [statistic(counts) for counts in draws]
    nothing = np.full(resampling.num_resamples, np.nan)
    return {
        metric: np.concatenate([block[metric] for block in blocks])
        if metric in blocks[0]
        else nothing
        for metric in metrics
    }
