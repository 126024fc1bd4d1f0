"""Intervals of the metrics of runs, and of the differences between runs, by a paired bootstrap.

In every resample, the same test samples are drawn for all runs; runs without test samples share the
draws of each seed's validation samples. A metric is computed for every seed on the samples drawn
and averaged over the seeds. Seeds are drawn too, n - 1 of n with replacement, for which the
variance of the mean is the usual unbiased estimate; runs with the same seeds share these draws, as
a seed gives them the same split, order and initial parameters. The intervals thus cover the choice
of test samples and, with two or more seeds, the choice of seeds. They are percentile intervals of
one metric and one pair at a time, not corrected for several comparisons.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer.metrics.bootstrap import Resampling, resamples
from trainer.metrics.weighted import WEIGHTED_METRICS, weighted_metrics
from trainer.reports.comparison import Comparison, Run, sample_set, seed_predictions
from trainer.run_folder import TEST


@dataclass(frozen=True)
class ComparisonIntervals:
    """The metrics of all runs in the same resamples.

    Attributes:
        values: By stage and metric, the mean over the seeds of each run in each resample; NaN where
            it has no value. Shape (runs, resamples).
        resampling: Settings of the bootstrap.
    """

    values: Mapping[tuple[str, str], NDArray[np.float64]]
    resampling: Resampling

    def interval(self, run: int, stage: str, metric: str) -> tuple[float, float] | None:
        """Interval of a run's mean over its seeds; None where the metric has none.

        Args:
            run: Position of the run in the comparison.
            stage: Key of `record.STAGES`.
            metric: Name of the metric in a record.
        """
        values = self.values.get((stage, metric))
        return None if values is None else self._quantiles(values[run])

    def difference(
        self, first: int, second: int, stage: str, metric: str
    ) -> tuple[float, float] | None:
        """Interval of the first run's mean minus the second's; arguments as in `interval`."""
        values = self.values.get((stage, metric))
        return None if values is None else self._quantiles(values[first] - values[second])

    def _quantiles(self, values: NDArray[np.float64]) -> tuple[float, float] | None:
        defined = values[np.isfinite(values)]
        if not len(defined):
            return None
        outside = (1 - self.resampling.level) / 2
        low, high = np.quantile(defined, [outside, 1 - outside])
        return float(low), float(high)


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
    values = {}
    for stage in comparison.stages:
        runs: list[dict[int, dict[str, NDArray[np.float64]]]] = []
        for run in comparison.runs:
            runs.append({})
            for seed in run.records:
                if stage in run.records[seed]:
                    runs[-1][seed] = _resampled_seed(run, seed, stage, known, resampling)
                advance()
        for metric in known:
            means = [
                _mean_over_seeds({seed: each[metric] for seed, each in seeds.items()}, resampling)
                for seeds in runs
            ]
            values[stage, metric] = np.stack(means)
    return ComparisonIntervals(values, resampling)


def _resampled_seed(
    run: Run, seed: int, stage: str, metrics: Sequence[str], resampling: Resampling
) -> dict[str, NDArray[np.float64]]:
    """Metrics of one seed in every resample. Each of shape (resamples,)."""
    predictions = seed_predictions(run, seed, stage)
    # Equal draws for equal samples; validation samples of different seeds are different samples.
    samples = sample_set(run, seed)
    offset = 0 if samples == TEST else 1 + seed
    sizes = (len(predictions.targets),)
    draws = resamples(sizes, replace(resampling, seed=resampling.seed + offset))
    statistic = weighted_metrics(predictions.logits, predictions.targets, metrics)
    blocks = [statistic(counts) for counts in draws]
    nothing = np.full(resampling.num_resamples, np.nan)
    return {
        metric: np.concatenate([block[metric] for block in blocks])
        if metric in blocks[0]
        else nothing
        for metric in metrics
    }


def _mean_over_seeds(
    seeds: Mapping[int, NDArray[np.float64]], resampling: Resampling
) -> NDArray[np.float64]:
    """Mean over seeds that are drawn anew for each resample. Shape (resamples,)."""
    if not seeds:
        return np.full(resampling.num_resamples, np.nan)
    values = np.stack(list(seeds.values()))
    if len(seeds) == 1:
        return values[0]
    # Runs with equal seeds have equal draws, those with other seeds draws of their own.
    generator = np.random.default_rng([resampling.seed, *seeds])
    drawn = generator.integers(len(seeds), size=(len(seeds) - 1, resampling.num_resamples))
    return np.take_along_axis(values, drawn, axis=0).mean(axis=0)
