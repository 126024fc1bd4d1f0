"""Comparison of runs: mean and standard deviation over seeds, with the best of each metric marked.

A seed is finished once its metrics exist. All runs of a comparison were evaluated on the same
samples: those of the test dataset or, without one, the validation samples of each seed.
"""

import csv
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difficulty_service.errors import Setting, TrainingError
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.output_path import require_output_file
from trainer import run_folder
from trainer.evaluation.prediction_file import read_predictions
from trainer.evaluation.record import STAGES, MetricValues, read_metrics
from trainer.reports.columns import COLUMNS, MAIN_COLUMNS, TEMPERATURE, Column
from trainer.reports.reliability_diagram import draw_reliability

STAGE_TITLES = {
    "raw": "As trained",
    "temperature_nll": "After temperature scaling by NLL",
    "temperature_ece": "After temperature scaling by ECE",
}

LEGEND = (
    "Mean ± sample standard deviation over seeds; the best mean is bold; ↑ higher is better, "
    "↓ lower is better."
)


@dataclass(frozen=True)
class Run:
    """The results of one recipe.

    Attributes:
        name: Name in tables, unique within a comparison.
        folder: Folder of the run.
        records: Metrics by stage of each finished seed.
        num_started: Number of seeds with a folder, finished or not.
    """

    name: str
    folder: Path
    records: Mapping[int, Mapping[str, MetricValues]]
    num_started: int

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
        renamed.append(Run(name, run.folder, run.records, run.num_started))
    return Comparison(tuple(renamed))


def summarise(run: Run, stage: str, metric: str) -> Summary | None:
    """Mean and standard deviation of a metric over a run's seeds; None where no seed has it."""
    values = [record.get(stage, {}).get(metric) for record in run.records.values()]
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    std = statistics.stdev(defined) if len(defined) > 1 else None
    return Summary(statistics.fmean(defined), std, len(defined))


def markdown_table(comparison: Comparison, metrics: Sequence[str] = MAIN_COLUMNS) -> str:
    """Formats one Markdown table per stage.

    Args:
        comparison: Runs to compare.
        metrics: Keys of `columns.COLUMNS`.
    """
    parts = [LEGEND]
    for stage in comparison.stages:
        columns = [COLUMNS[metric] for metric in metrics]
        if stage != "raw":
            columns.append(TEMPERATURE)
        cells = [["run", "seeds", *(column.header for column in columns)]]
        cells.append(["---"] * len(cells[0]))
        shown = [_cells(comparison, stage, column) for column in columns]
        for number, run in enumerate(comparison.runs):
            name = run.name.replace("|", r"\|")
            cells.append([name, run.seeds, *(column[number] for column in shown)])
        rows = "\n".join(f"| {' | '.join(row)} |" for row in cells)
        parts.append(f"### {STAGE_TITLES[stage]}\n\n{rows}")
    return "\n\n".join(parts) + "\n"


def write_comparison(comparison: Comparison, out: Path) -> None:
    """Writes a comparison as Markdown, CSV, JSON and reliability diagrams.

    Next to `table.md`: `table.csv` and `table.json` with mean, std and n of every metric,
    `table-seeds.csv` with the value of every seed, and `table-reliability.png` and `.svg` with the
    reliability of each run's first seed. CSV and JSON hold fractions, as in a record.

    Args:
        comparison: Runs to compare.
        out: Path of the Markdown file; existing files are replaced.

    Raises:
        TrainingError: The name has another ending than .md, or predictions are missing or damaged.
    """
    require_output_file(out, (".md", ""), TrainingError)
    stem = out.stem
    summaries, seeds = _summary_rows(comparison), _seed_rows(comparison)
    with replacing(out.with_name(f"{stem}.md")) as temporary:
        temporary.write_text(markdown_table(comparison), encoding="utf-8")
    _write_csv(out.with_name(f"{stem}.csv"), summaries)
    _write_csv(out.with_name(f"{stem}-seeds.csv"), seeds)
    run_folder.write_json(out.with_name(f"{stem}.json"), {"metrics": summaries, "seeds": seeds})
    predictions = {}
    for run in comparison.runs:
        seed = min(run.records)
        evaluated = read_predictions(_evaluated_predictions(run, seed))
        predictions[f"{run.name}, seed {seed}"] = (evaluated.logits, evaluated.targets)
    for suffix in (".png", ".svg"):
        draw_reliability(predictions, out.with_name(f"{stem}-reliability{suffix}"))


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
    description = run_folder.read_json(finished[0] / run_folder.RECIPE)
    recipe = description.get("recipe", description)
    records = {_seed_of(seed): _read_record(seed / run_folder.METRICS) for seed in finished}
    return Run(str(recipe.get("name", folder.name)), folder, records, len(started))


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
            # Validation samples may differ between seeds; the test samples may not.
            key = run_folder.TEST if path.name == run_folder.TEST else f"validation of seed {seed}"
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


def _cells(comparison: Comparison, stage: str, column: Column) -> list[str]:
    """One metric of every run, with the best in bold."""
    summaries = [summarise(run, stage, column.metric) for run in comparison.runs]
    means = [summary.mean for summary in summaries if summary is not None]
    cells = []
    for summary in summaries:
        mean = None if summary is None else summary.mean
        text = f"**{column.shown(mean)}**" if column.is_best(mean, means) else column.shown(mean)
        spread = "" if summary is None or summary.std is None else f" ± {column.shown(summary.std)}"
        cells.append(text + spread)
    return cells


def _metrics_of(comparison: Comparison, stage: str) -> list[str]:
    """Every metric that any record has at a stage, in the order of the records."""
    records = [record.get(stage, {}) for run in comparison.runs for record in run.records.values()]
    return list(dict.fromkeys(metric for record in records for metric in record))


def _summary_rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for run in comparison.runs:
        for stage in comparison.stages:
            for metric in _metrics_of(comparison, stage):
                if (summary := summarise(run, stage, metric)) is not None:
                    keys = {"run": run.name, "stage": stage, "metric": metric}
                    values = {"mean": summary.mean, "std": summary.std, "n": summary.num_seeds}
                    rows.append(keys | values)
    return rows


def _seed_rows(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {"run": run.name, "seed": seed, "stage": stage, "metric": metric, "value": value}
        for run in comparison.runs
        for seed, record in run.records.items()
        for stage, metrics in record.items()
        for metric, value in metrics.items()
    ]


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
