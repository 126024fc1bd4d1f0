"""Judges every seed of a run and lays the numbers out for people."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difficulty_service.errors import TrainingError
from trainer import run_folder
from trainer.evaluation.corruptions import CORRUPTIONS, SEVERITIES
from trainer.evaluation.prediction_file import write_predictions
from trainer.evaluation.record import STAGES, Measures, write_metrics
from trainer.metrics.bootstrap import Resampling
from trainer.metrics.ood import OOD_SCORES
from trainer.reports.columns import COLUMNS, NO_VALUE, TEMPERATURE, Column
from trainer.runs.evaluate import (
    DatasetChoice,
    Record,
    judge_against,
    judge_corrupted,
    judge_on,
    judge_stored,
    load_model,
)

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
class Wanted:
    """What to judge a run on.

    Attributes:
        data: Another dataset than the recipe's test data; None for these.
        ood: Datasets to tell from the test data.
        corruptions: Whether to judge on corrupted test images.
    """

    data: DatasetChoice | None = None
    ood: tuple[str, ...] = ()
    corruptions: bool = False


def evaluate_seeds(
    run: Path, wanted: Wanted, device: str, advance: Callable[[], None]
) -> list[str]:
    """Judges every finished seed, writes the numbers beside its model, and tabulates them.

    Args:
        run: Folder of the run.
        wanted: What to judge on.
        device: "auto", "cpu", "cuda", ...
        advance: Called after each corruption of each seed.

    Returns:
        Markdown tables of mean and standard deviation over the seeds.

    Raises:
        TrainingError: No seed is finished.
        DatasetError: A dataset cannot be read, or has other classes.
    """
    folders = [
        folder for folder in run_folder.seed_folders(run) if (folder / run_folder.METRICS).exists()
    ]
    if not folders:
        raise TrainingError(f"no seed of {run} is finished; go on with `difficulty train --resume`")
    tables = [_metrics_table([_judge(folder, wanted.data, device) for folder in folders])]
    if wanted.ood:
        tables.append(_ood_table([_judge_ood(each, wanted.ood, device) for each in folders]))
    if wanted.corruptions:
        judged = [judge_corrupted(load_model(folder, device), advance) for folder in folders]
        for folder, records in zip(folders, judged, strict=True):
            write_metrics(folder / run_folder.CORRUPTIONS, records)
        tables.append(_corruptions_table(judged))
    return tables


def _judge(folder: Path, choice: DatasetChoice | None, device: str) -> Record:
    """The record of one seed, written to its folder."""
    if choice is None:
        record, source = judge_stored(folder, Resampling()), _stored_source(folder)
    else:
        record, said = judge_on(load_model(folder, device), choice, Resampling())
        source = choice.location
        write_predictions(folder / run_folder.EVALUATED, said)
    write_metrics(folder / run_folder.EVALUATION, {"data": source, **record})
    return record


def _stored_source(folder: Path) -> str:
    """What the predictions that a run kept are of."""
    has_test = (folder / run_folder.TEST).exists()
    return "the recipe's test data" if has_test else "the validation samples held out"


def _judge_ood(folder: Path, locations: Sequence[str], device: str) -> dict[str, Any]:
    trained = load_model(folder, device)
    records = {location: judge_against(trained, location) for location in locations}
    write_metrics(folder / run_folder.OOD, records)
    return records


def _metrics_table(records: Sequence[Record]) -> str:
    """A row per metric, a column per stage."""
    stages = [stage for stage in STAGES if all(stage in record for record in records)]
    columns = [TEMPERATURE, *COLUMNS.values()]
    rows = []
    for column in columns:
        cells = [_spread([record[stage] for record in records], column) for stage in stages]
        if any(cell != NO_VALUE for cell in cells):
            rows.append([column.header, *cells])
    return _table(["metric", *STAGE_TITLES[: len(stages)]], rows)


def _ood_table(records: Sequence[Mapping[str, Any]]) -> str:
    """A row per dataset and score."""
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
    """A row per severity, over all corruptions; then a row per corruption, over all severities."""
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
) -> Measures:
    values = [record[name][severity].get(stage, {}).get(metric) for name, severity in keys]
    known = [value for value in values if value is not None]
    return {metric: statistics.fmean(known) if known else None}


def _spread(measures: Sequence[Mapping[str, float | None]], column: Column) -> str:
    """Mean and standard deviation of a metric over the seeds, as its column shows it."""
    known = [value for each in measures if (value := each.get(column.metric)) is not None]
    if not known:
        return NO_VALUE
    shown = column.shown(statistics.fmean(known))
    return f"{shown} ± {column.shown(statistics.stdev(known))}" if len(known) > 1 else shown


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
