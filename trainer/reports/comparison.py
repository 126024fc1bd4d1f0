"""Runs to compare: their records of metrics, what they minimised, and their predictions.

A seed is finished once its metrics exist. All runs of a comparison were evaluated on the same
samples: those of the test dataset or, without one, the validation samples of each seed.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from difficulty_service.errors import Setting, TrainingError
from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.evaluation.record import STAGES, MetricValues, read_metrics


@dataclass(frozen=True)
class Run:
    """The results of one recipe.

    Attributes:
        name: Name in tables, unique within a comparison.
        folder: Folder of the run.
        records: Metrics by stage of each finished seed.
        num_started: Number of seeds with a folder, finished or not.
        objectives: What each finished seed minimised, the values of `objective.json`.
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
    """One metric over the seeds that have a value.

    Attributes:
        mean: Mean over these seeds.
        std: Sample standard deviation, with n - 1; None for one seed.
        num_seeds: Number of these seeds.
    """

    mean: float
    std: float | None
    num_seeds: int


@dataclass(frozen=True)
class Comparison:
    """Runs evaluated on the same samples.

    Attributes:
        runs: Runs in the order of the rows of a table.
    """

    runs: tuple[Run, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that any of the runs has."""
        records = [record for run in self.runs for record in run.records.values()]
        return tuple(stage for stage in STAGES if any(stage in record for record in records))


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Reads the finished seeds of runs.

    Args:
        folders: One per run; runs with the same name are distinguished by their folders.

    Raises:
        TrainingError: There are no folders, a folder is given twice or has no finished seed, a
            file is missing or damaged, or runs were evaluated on different samples.
    """
    if not folders or len({folder.resolve() for folder in folders}) < len(folders):
        raise TrainingError(
            f"{len(folders)} runs to compare", "give at least one, and each once", parameter="runs"
        )
    runs = [_read_run(folder) for folder in folders]
    _check_same_samples(runs)
    names = Counter(run.name for run in runs)
    folder_names = Counter((run.name, run.folder.name) for run in runs)
    renamed = []
    for run in runs:
        unique_folder = folder_names[run.name, run.folder.name] == 1
        folder = run.folder.name if unique_folder else str(run.folder)
        name = run.name if names[run.name] == 1 else f"{run.name} ({folder})"
        renamed.append(replace(run, name=name))
    return Comparison(tuple(renamed))


def summarise(run: Run, stage: str, metric: str) -> Summary | None:
    """Mean and standard deviation of a metric over a run's seeds; None where no seed has it."""
    values = [record.get(stage, {}).get(metric) for record in run.records.values()]
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    std = statistics.stdev(defined) if len(defined) > 1 else None
    return Summary(statistics.fmean(defined), std, len(defined))


def seed_predictions(run: Run, seed: int, stage: str = "raw") -> Predictions:
    """The predictions that the metrics of a stage were computed from, in the order of their ids.

    Args:
        run: Run of a comparison.
        seed: A finished seed of it.
        stage: A stage of the seed's record; logits are divided by its temperature.

    Raises:
        TrainingError: The file is missing or damaged.
    """
    saved = read_predictions(_evaluated_predictions(run, seed))
    order = sorted(range(len(saved.sample_ids)), key=lambda row: _truth(saved, row))
    logits = saved.logits[torch.tensor(order)].double()
    temperature = run.records[seed][stage].get("temperature") or 1.0
    ids = [saved.sample_ids[row] for row in order]
    return Predictions(ids, logits / temperature, saved.targets[torch.tensor(order)])


def sample_set(run: Run, seed: int) -> str:
    """The samples that a seed was evaluated on; seeds with an equal text share them all."""
    path = _evaluated_predictions(run, seed)
    # Validation samples may differ between seeds; the test samples may not.
    return run_folder.TEST if path.name == run_folder.TEST else f"validation of seed {seed}"


def _truth(predictions: Predictions, row: int) -> tuple[str, int]:
    return predictions.sample_ids[row], int(predictions.targets[row])


def _read_run(folder: Path) -> Run:
    started = run_folder.seed_folders(folder)
    finished = [seed for seed in started if (seed / run_folder.METRICS).is_file()]
    if not finished:
        raise TrainingError(
            f"none of the {len(started)} seeds in {folder} is finished, {run_folder.METRICS} is "
            "missing",
            "resume the training with ",
            Setting("resume", value=True),
        )
    return Run(
        name=str(run_folder.read_run(finished[0])["recipe"]["name"]),
        folder=folder,
        records={_seed_of(seed): _read_record(seed / run_folder.METRICS) for seed in finished},
        num_started=len(started),
        objectives={
            _seed_of(seed): run_folder.read_json(seed / run_folder.OBJECTIVE) for seed in finished
        },
    )


def _seed_of(seed_folder: Path) -> int:
    return int(seed_folder.name.removeprefix("seed-"))


def _read_record(path: Path) -> Mapping[str, MetricValues]:
    record = read_metrics(path)
    return {stage: record[stage] for stage in STAGES if stage in record}


def _evaluated_predictions(run: Run, seed: int) -> Path:
    """The file of the predictions that a seed's metrics were computed from."""
    folder = run_folder.seed_folder(run.folder, seed)
    test = folder / run_folder.TEST
    return test if test.is_file() else folder / run_folder.VALIDATION


def _check_same_samples(runs: Sequence[Run]) -> None:
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
