"""Runs to compare: their records of metrics, what they minimised, and their predictions.

A seed is finished once its metrics exist. All runs of a comparison were evaluated on the same
samples: those of the test dataset or, without one, the validation samples of each seed.

Intervals of the metrics of runs, and of the differences between runs, by a paired bootstrap.

In every resample, the same test samples are drawn for all runs; runs without test samples share the
draws of each seed's validation samples. A metric is computed for every seed on the samples drawn
and averaged over the seeds. Where there are several seeds, Student's t times the standard error
over the seeds is added: drawing from so few seeds would give intervals that are too narrow. Of two
seeds there is no interval: with one degree of freedom it would often be the whole range. Runs with
the same seeds are paired by them, as a seed gives them the same split, order and initial
parameters; for runs with other seeds the variances are pooled. The intervals are percentiles, of
one metric and one pair at a time, not corrected for several comparisons, and end where the range of
the metric does.

Metrics of OOD data and corrupted images are recorded without the predictions they come from. Their
samples cannot be drawn again, so that their intervals are of the seeds alone.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from difficulty_service.base.errors import Setting, TrainingError
from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.evaluation.record import STAGES, MetricValues, read_metrics
from trainer.metrics.bootstrap import Resampling, resamples
from trainer.metrics.weighted import WEIGHTED_METRICS, weighted_metrics
from trainer.reports.other_data import CORRUPTED_METRICS, OF, OOD_METRICS, metrics_of_other_data
from trainer.run_folder import TEST


@dataclass(frozen=True)
class ComparedRun:
    """The results of one recipe under a unique name: metrics and objectives of finished seeds.

    The metrics are those of the test data, and those on OOD data and corrupted images that
    `other_data` names.
    """

    name: str
    folder: Path
    records: Mapping[int, Mapping[str, MetricValues]]
    num_started: int
    objectives: Mapping[int, Mapping[str, Any]]

    @property
    def seeds(self) -> str:
        """Number of finished seeds, and of all seeds where some are not finished."""
        finished = len(self.records)
        return (
            str(finished) if finished == self.num_started else f"{finished} of {self.num_started}"
        )


@dataclass(frozen=True)
class Summary:
    """One metric over the seeds that have a value; the sample deviation is None for one seed."""

    mean: float
    std: float | None
    num_seeds: int
    lowest: float
    highest: float


@dataclass(frozen=True)
class RunComparison:
    """Runs evaluated on the same samples."""

    runs: tuple[ComparedRun, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that any of the runs has."""
        records = [record for run in self.runs for record in run.records.values()]
        return tuple(stage for stage in STAGES if any(stage in record for record in records))

    @property
    def ood_names(self) -> tuple[str, ...]:
        """The names of the OOD data that any of the runs was evaluated on."""
        records = [record for run in self.runs for record in run.records.values()]
        metrics = dict.fromkeys(metric for record in records for metric in record["raw"])
        names = (metric.partition(OF)[2] for metric in metrics if OF in metric)
        return tuple(dict.fromkeys(names))

    def has(self, metric: str) -> bool:
        """Whether any of the runs has a value of a metric."""
        return any(summarise(run, stage, metric) for run in self.runs for stage in self.stages)


def compare_runs(folders: Sequence[Path]) -> RunComparison:
    """Reads the finished seeds of runs; runs of the same name are told apart by their folders."""
    if not folders or len({folder.resolve() for folder in folders}) < len(folders):
        raise TrainingError(
            f"{len(folders)} runs to compare", "give at least one, and each once", parameter="runs"
        )
    runs = [_read_run(folder) for folder in folders]
    _check_same_samples(runs)
    names = unique_names([(run.name, run.folder) for run in runs])
    return RunComparison(
        tuple(replace(run, name=name) for run, name in zip(runs, names, strict=True))
    )


def unique_names(named: Sequence[tuple[str, Path]]) -> list[str]:
    """Names that differ: with the name of the file where that is enough, otherwise its path."""
    names = Counter(name for name, _ in named)
    longer = Counter((name, path.name) for name, path in named)
    return [
        name
        if names[name] == 1
        else f"{name} ({path.name if longer[name, path.name] == 1 else path})"
        for name, path in named
    ]


def summarise(run: ComparedRun, stage: str, metric: str) -> Summary | None:
    """Mean and standard deviation of a metric over a run's seeds; None where no seed has it."""
    values = [record.get(stage, {}).get(metric) for record in run.records.values()]
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    std = statistics.stdev(defined) if len(defined) > 1 else None
    mean = statistics.fmean(defined)
    return Summary(mean, std, len(defined), min(defined), max(defined))


def seed_predictions(run: ComparedRun, seed: int, stage: str = "raw") -> Predictions:
    """Predictions at the temperature of a stage, as its metrics had them, in the order of ids."""
    saved = read_predictions(_evaluated_predictions(run, seed))
    order = sorted(range(len(saved.sample_ids)), key=lambda row: _truth(saved, row))
    logits = saved.logits[torch.tensor(order)].double()
    temperature = run.records[seed][stage].get("temperature") or 1.0
    ids = [saved.sample_ids[row] for row in order]
    return Predictions(ids, logits / temperature, saved.targets[torch.tensor(order)])


def sample_set(run: ComparedRun, seed: int) -> str:
    """The samples that a seed was evaluated on; seeds with an equal text share them all."""
    path = _evaluated_predictions(run, seed)
    # Validation samples may differ between seeds; the test samples may not.
    return run_folder.TEST if path.name == run_folder.TEST else f"validation of seed {seed}"


def _truth(predictions: Predictions, row: int) -> tuple[str, int]:
    return predictions.sample_ids[row], int(predictions.targets[row])


def _read_run(folder: Path) -> ComparedRun:
    started = run_folder.seed_folders(folder)
    finished = [seed for seed in started if (seed / run_folder.METRICS).is_file()]
    if not finished:
        raise TrainingError(
            f"none of the {len(started)} seeds in {folder} is finished, {run_folder.METRICS} is "
            "missing",
            "resume the training with ",
            Setting("resume", value=True),
        )
    return ComparedRun(
        name=str(run_folder.read_run(finished[0])["recipe"]["name"]),
        folder=folder,
        records={_seed_of(seed): _read_record(seed) for seed in finished},
        num_started=len(started),
        objectives={
            _seed_of(seed): run_folder.read_json(seed / run_folder.OBJECTIVE) for seed in finished
        },
    )


def _read_record(seed: Path) -> dict[str, MetricValues]:
    """The metrics of a seed at every stage, those on other data last."""
    record, others = read_metrics(seed / run_folder.METRICS), metrics_of_other_data(seed)
    return {stage: record[stage] | others.get(stage, {}) for stage in STAGES if stage in record}


def _seed_of(seed_folder: Path) -> int:
    return int(seed_folder.name.removeprefix("seed-"))


def _evaluated_predictions(run: ComparedRun, seed: int) -> Path:
    """The file of the predictions that a seed's metrics were computed from."""
    folder = run_folder.seed_folder(run.folder, seed)
    test = folder / run_folder.TEST
    return test if test.is_file() else folder / run_folder.VALIDATION


def _check_same_samples(runs: Sequence[ComparedRun]) -> None:
    """Refuses runs that were evaluated on different samples or labels."""
    truths: dict[str, list[tuple[str, int]]] = {}
    for run in runs:
        for seed in run.records:
            path = _evaluated_predictions(run, seed)
            predictions = read_predictions(path)
            truth = sorted(zip(predictions.sample_ids, predictions.targets.tolist(), strict=True))
            key = sample_set(run, seed)
            if truths.setdefault(key, truth) != truth:
                raise TrainingError(
                    f"{path} has other samples or labels than the same file of "
                    f"{runs[0].folder}: {len(truth)} against {len(truths[key])}, of which "
                    f"{len(set(truth) & set(truths[key]))} agree",
                    "compare runs that were evaluated on the same samples",
                )
    if run_folder.TEST in truths and len(truths) > 1:
        raise TrainingError(
            f"some seeds were evaluated on a test dataset, others on validation samples ("
            f"{', '.join(sorted(truths))})",
            "compare runs that were evaluated on the same samples",
        )


TWO_SEEDS = 2

TOO_FEW = 1
"""Degrees of freedom, those of two seeds, with which there is no interval."""

HIGHEST = {"nll": math.inf, "brier_score": 2.0}
"""The largest possible values of metrics that are no shares; that of all others is 1.

The smallest is 0 of every metric.
"""


def _highest(metric: str) -> float:
    """The largest possible value of a metric, also of corrupted images."""
    name, _ = CORRUPTED_METRICS.get(metric, (metric, None))
    return HIGHEST.get(name, 1.0)


def has_seeds_alone(metric: str) -> bool:
    """Whether intervals of a metric are of the seeds alone: of OOD data and corrupted images."""
    return metric in CORRUPTED_METRICS or metric.partition(OF)[0] in OOD_METRICS


SEEDS_ALONE = (
    "Intervals of OOD data and corrupted images are of the seeds alone, by Student's t of three "
    "seeds or more."
)


@dataclass(frozen=True)
class ResampledMetric:
    """One metric of all runs at one stage.

    Attributes:
        means: Mean over the seeds of each run in each resample of the test samples; NaN where it
            has no value. Of the seeds alone, the mean itself, and NaN of a single seed. Shape
            (runs, resamples).
        seeds: For each run, the value of every seed that has one, on the test samples themselves.
    """

    means: NDArray[np.float64]
    seeds: Sequence[Mapping[int, float]]


@dataclass(frozen=True)
class ComparisonIntervals:
    """The metrics of all runs in the same resamples."""

    metrics: Mapping[tuple[str, str], ResampledMetric]
    resampling: Resampling

    def interval(self, run: int, stage: str, metric: str) -> tuple[float, float] | None:
        """Interval of the mean over the seeds of a run, which is named by its position."""
        each = self.metrics.get((stage, metric))
        if each is None:
            return None
        interval = self._interval(each.means[run], [each.seeds[run]])
        return _clipped(interval, 0.0, _highest(metric))

    def difference(
        self, first: int, second: int, stage: str, metric: str
    ) -> tuple[float, float] | None:
        """Interval of the first run's mean minus the second's, likewise."""
        each = self.metrics.get((stage, metric))
        if each is None:
            return None
        seeds = [each.seeds[first], each.seeds[second]]
        interval = self._interval(each.means[first] - each.means[second], seeds)
        largest = _highest(metric)
        return _clipped(interval, -largest, largest)

    def _interval(
        self, resampled: NDArray[np.float64], seeds: Sequence[Mapping[int, float]]
    ) -> tuple[float, float] | None:
        error, freedom = error_over_seeds(*seeds)
        if freedom == TOO_FEW:
            return None
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
    comparison: RunComparison,
    metrics: Sequence[str],
    resampling: Resampling,
    advance: Callable[[], None] = lambda: None,
) -> ComparisonIntervals:
    """Computes metrics of all runs in the same resamples of the samples they were evaluated on.

    Metrics of OOD data and corrupted images stay as they are in every resample; others without a
    bootstrap are left out. `advance` is called after each seed at each stage.
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
        for metric in filter(has_seeds_alone, metrics):
            seeds = [_values_of(run, stage, metric) for run in comparison.runs]
            same = [np.mean([*each.values()]) if len(each) > 1 else np.nan for each in seeds]
            means_of_runs = np.repeat(np.array(same)[:, None], resampling.num_resamples, axis=1)
            resampled[stage, metric] = ResampledMetric(means_of_runs, seeds)
    return ComparisonIntervals(resampled, resampling)


def _values_of(run: ComparedRun, stage: str, metric: str) -> dict[int, float]:
    """The recorded value of every seed that has one."""
    values = {seed: record.get(stage, {}).get(metric) for seed, record in run.records.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def _resampled_seed(
    run: ComparedRun, seed: int, stage: str, metrics: Sequence[str], resampling: Resampling
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
