"""Evaluates every seed of a run and formats the metrics as tables."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from difficulty_service.errors import ConfigError, Setting, TrainingError
from trainer import run_folder
from trainer.evaluation.corruptions import CORRUPTIONS, SEVERITIES
from trainer.evaluation.prediction_file import write_predictions
from trainer.evaluation.record import STAGES, MetricValues, write_metrics
from trainer.metrics.bootstrap import Resampling
from trainer.metrics.ood import OOD_SCORES
from trainer.reports.columns import COLUMNS, NO_VALUE, TEMPERATURE, Column
from trainer.runs.evaluate import (
    DatasetChoice,
    Record,
    TrainedModel,
    evaluate_corruptions,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    evaluate_saved_predictions,
    load_model,
)
from trainer.samples import Samples, SkippedEntry

STAGE_TITLES = ("as trained", "temperature by NLL", "temperature by ECE")

OOD_COLUMNS = (
    Column("auroc", "AUROC", "higher", 100),
    Column("aupr_ood", "AUPR, OOD positive", "higher", 100),
    Column("aupr_id", "AUPR, ID positive", "higher", 100),
    Column("fpr_at_95_tpr", "FPR at 95 % TPR", "lower", 100),
)

CORRUPTION_CELLS = (
    ("accuracy", "raw"),
    ("nll", "raw"),
    ("adaptive_ece", "raw"),
    ("adaptive_ece", "temperature_nll"),
)


@dataclass(frozen=True)
class EvaluationRequest:
    """The data to evaluate a run on.

    Attributes:
        data: Dataset of the same classes; None is the recipe's test data.
        ood: Locations of out-of-distribution datasets.
        corruptions: Whether to evaluate on corrupted test images.
        on_error: What to do with images that cannot be read, "skip" or "stop"; None is what the
            recipe says.
    """

    data: DatasetChoice | None = None
    ood: tuple[str, ...] = ()
    corruptions: bool = False
    on_error: Literal["skip", "stop"] | None = None


@dataclass(frozen=True)
class _Seed:
    """A finished seed to evaluate.

    Attributes:
        folder: Folder of the seed.
        request: Data to evaluate on.
        device: "auto", "cpu", "cuda", ...
        skipped: Receives the entries of the opened datasets that are not used.
        warnings: Receives the warnings about the opened datasets.
    """

    folder: Path
    request: EvaluationRequest
    device: str
    skipped: list[SkippedEntry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def load(self) -> TrainedModel:
        """Loads the model of the seed."""
        trained = load_model(self.folder, self.device)
        data = trained.recipe.data
        if self.request.on_error is not None:
            if data.kind != "images":
                raise ConfigError(
                    f"on_error applies to images, and this run has kind {data.kind!r}",
                    "leave out ",
                    Setting("on_error"),
                    parameter="on_error",
                )
            data = replace(data, on_error=self.request.on_error)
        recipe = replace(trained.recipe, data=data)
        return replace(trained, recipe=recipe, on_open=self._note)

    def _note(self, samples: Samples) -> None:
        self.skipped.extend(samples.skipped)
        self.warnings.extend(samples.warnings)


def evaluate_seeds(
    run: Path,
    request: EvaluationRequest,
    device: str,
    advance: Callable[[], None],
    warn: Callable[[Sequence[str]], None] = lambda _sentences: None,
) -> list[str]:
    """Evaluates every finished seed and writes the metrics into its folder.

    Args:
        run: Folder of the run.
        request: Data to evaluate on.
        device: "auto", "cpu", "cuda", ...
        advance: Called after each corruption of each seed.
        warn: Called once with the warnings about the datasets.

    Returns:
        Markdown tables with mean and standard deviation over the seeds.

    Raises:
        TrainingError: No seed is finished.
        DatasetError: A dataset cannot be read, or has other classes.
    """
    folders = [
        folder for folder in run_folder.seed_folders(run) if (folder / run_folder.METRICS).exists()
    ]
    if not folders:
        raise TrainingError(
            f"no seed of {run} is finished",
            "resume the training with ",
            Setting("resume", value=True),
        )
    seeds = [_Seed(folder, request, device) for folder in folders]
    tables = [_metrics_table([_evaluate(seed) for seed in seeds])]
    if request.ood:
        tables.append(_ood_table([_evaluate_ood(seed) for seed in seeds]))
    if request.corruptions:
        results = [evaluate_corruptions(seed.load(), advance) for seed in seeds]
        for seed, records in zip(seeds, results, strict=True):
            write_metrics(seed.folder / run_folder.CORRUPTIONS, records)
        tables.append(_corruptions_table(results))
    for seed in seeds:
        run_folder.write_errors(seed.folder / run_folder.EVALUATION_ERRORS, seed.skipped)
    warn(list(dict.fromkeys(text for seed in seeds for text in seed.warnings)))
    return tables


def _evaluate(seed: _Seed) -> Record:
    """Evaluates one seed and writes the record into its folder."""
    choice, folder = seed.request.data, seed.folder
    if choice is None:
        record = evaluate_saved_predictions(folder, Resampling())
        source = _source_of_saved_predictions(folder)
    else:
        record, predictions = evaluate_on_dataset(seed.load(), choice, Resampling())
        source = choice.location
        write_predictions(folder / run_folder.EVALUATION_PREDICTIONS, predictions)
    write_metrics(folder / run_folder.EVALUATION, {"data": source, **record})
    return record


def _source_of_saved_predictions(folder: Path) -> str:
    """The data that the saved predictions of a run are for."""
    has_test = (folder / run_folder.TEST).exists()
    return "the recipe's test data" if has_test else "the validation samples held out"


def _evaluate_ood(seed: _Seed) -> dict[str, Any]:
    trained = seed.load()
    records = {location: evaluate_ood_dataset(trained, location) for location in seed.request.ood}
    write_metrics(seed.folder / run_folder.OOD, records)
    return records


def _metrics_table(records: Sequence[Record]) -> str:
    """One row per metric and one column per stage."""
    stages = [stage for stage in STAGES if all(stage in record for record in records)]
    columns = [TEMPERATURE, *COLUMNS.values()]
    rows = []
    for column in columns:
        cells = [_spread([record[stage] for record in records], column) for stage in stages]
        if any(cell != NO_VALUE for cell in cells):
            rows.append([column.header, *cells])
    return _table(["metric", *STAGE_TITLES[: len(stages)]], rows)


def _ood_table(records: Sequence[Mapping[str, Any]]) -> str:
    """One row per dataset and score."""
    rows = [
        [
            location.replace("|", r"\|"),
            score,
            *(
                _spread([record[location][score] for record in records], column)
                for column in OOD_COLUMNS
            ),
        ]
        for location in records[0]
        for score in OOD_SCORES
    ]
    return _table(["against", "by", *(column.header for column in OOD_COLUMNS)], rows)


def _corruptions_table(records: Sequence[Mapping[str, Mapping[str, Record]]]) -> str:
    """One row per severity, over all corruptions; one per corruption, over all severities."""
    groups = [
        (f"severity {severity}", [(name, str(severity)) for name in CORRUPTIONS])
        for severity in SEVERITIES
    ]
    groups += [
        (name.replace("_", " "), [(name, str(severity)) for severity in SEVERITIES])
        for name in CORRUPTIONS
    ]
    rows = []
    for title, keys in groups:
        cells = []
        for metric, stage in CORRUPTION_CELLS:
            means = [_mean_over(record, keys, metric, stage) for record in records]
            cells.append(_spread(means, COLUMNS[metric]))
        rows.append([title, *cells])
    titles = [
        COLUMNS[metric].header + (", scaled" if stage != "raw" else "")
        for metric, stage in CORRUPTION_CELLS
    ]
    return _table(["corrupted by", *titles], rows)


def _mean_over(
    record: Mapping[str, Mapping[str, Record]],
    keys: Sequence[tuple[str, str]],
    metric: str,
    stage: str,
) -> MetricValues:
    values = [record[name][severity].get(stage, {}).get(metric) for name, severity in keys]
    defined = [value for value in values if value is not None]
    return {metric: statistics.fmean(defined) if defined else None}


def _spread(seeds: Sequence[Mapping[str, float | None]], column: Column) -> str:
    """Mean and standard deviation of a metric over the seeds, formatted for its column."""
    values = [value for each in seeds if (value := each.get(column.metric)) is not None]
    if not values:
        return NO_VALUE
    mean = column.shown(statistics.fmean(values))
    return f"{mean} ± {column.shown(statistics.stdev(values))}" if len(values) > 1 else mean


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
