"""Evaluates every seed of a run: files in the folders of the seeds, tables, and a score file.

The tables are Markdown, with mean and standard deviation over the seeds. Loss as difficulty and
confidence as difficulty are the scores that Cui et al. (2023) compare the relative Mahalanobis
distance with in table 10.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import torch
from torch import Tensor

from difficulty_service.base.contract import given
from difficulty_service.base.errors import ConfigError, Setting, TrainingError
from difficulty_service.features.description import RecordedOptions
from difficulty_service.images.corruptions import SEVERITIES
from trainer import run_folder
from trainer.config import Data
from trainer.evaluation.prediction_file import (
    Predictions,
    read_predictions,
    write_distances,
    write_predictions,
)
from trainer.evaluation.record import (
    MISCLASSIFICATION,
    STAGES,
    MetricValues,
    NamedCurve,
    add_records,
    misclassification_curves,
    read_curves,
    write_curves,
    write_metrics,
)
from trainer.metrics.bootstrap import Resampling
from trainer.metrics.predictions import centred_blocks
from trainer.own_code import describe_own
from trainer.reports.columns import COLUMNS, NO_VALUE, OOD_COLUMNS, TEMPERATURE, UNITS, TableColumn
from trainer.reports.comparison_table import STAGE_TITLES, markdown_rows
from trainer.reports.diagrams import FORMATS, draw_roc
from trainer.reports.other_data import ALL_OOD_SCORES, UNSCALED
from trainer.reports.run_scores import write_run_scores
from trainer.runs.corruptions import CorruptionChoice, evaluate_corruptions
from trainer.runs.evaluate import (
    DatasetChoice,
    OodChoice,
    Record,
    TrainedModel,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    evaluate_saved_predictions,
    load_model,
    measure_features,
    saved_predictions,
    validation_predictions,
)
from trainer.runs.model_file import read_recipe
from trainer.samples import Samples, SkippedEntry

MEANINGS = {
    "loss": "cross-entropy of the label in nats, mean over the seeds",
    "doubt": "1 - the largest probability, mean over the seeds",
    "nearest_label": "class of the largest mean log-probability",
    "label_margin": "largest mean log-probability of another class minus the label's, in nats",
    "percentile": "rank of `loss`, 0 easiest to 1 hardest",
}
"""Meaning of the columns that are filled."""


def write_prediction_scores(
    path: Path,
    run: Path,
    predictions: Mapping[Path, Predictions],
    choice: DatasetChoice | None = None,
) -> None:
    """Writes loss and doubt of every sample, without temperature scaling, as a score file."""
    first, *others = predictions.values()
    for other in others:
        if list(other.sample_ids) != list(first.sample_ids) or not torch.equal(
            other.targets, first.targets
        ):
            raise TrainingError(
                f"the seeds of {run} were evaluated on different samples",
                "evaluate all of them on one dataset with ",
                Setting("data"),
            )
    folder = next(iter(predictions))
    recipe, _ = read_recipe(folder)
    _, class_names = run_folder.read_inputs(folder / run_folder.INPUTS)
    table = prediction_scores(list(predictions.values()), class_names)
    has_test = (folder / run_folder.TEST).exists()
    dataset = _place(recipe.data, choice, has_test=has_test)
    write_run_scores(path, table, run, predictions, dataset, MEANINGS)


def prediction_scores(seeds: Sequence[Predictions], class_names: Sequence[str]) -> pa.Table:
    """The columns of MEANINGS and the labels, one row per sample, in their order."""
    targets = seeds[0].targets.long()
    nearest = torch.empty(len(targets), dtype=torch.int32)
    losses, doubts, margins = (torch.empty(len(targets), dtype=torch.float64) for _ in range(3))
    for blocks in zip(*(centred_blocks(each.logits) for each in seeds), strict=True):
        rows = blocks[0][0]
        logarithms = [block.log_softmax(dim=1) for _, block in blocks]
        doubts[rows] = _mean([1 - each.amax(dim=1).exp() for each in logarithms])
        mean = _mean(logarithms)
        own = mean.gather(1, targets[rows, None])[:, 0]
        losses[rows] = -own
        nearest[rows] = mean.argmax(dim=1).int()
        rest = mean.scatter(1, targets[rows, None], -torch.inf)
        margins[rows] = rest.amax(dim=1) - own
    names = pa.array(list(class_names), pa.string())
    return pa.table(
        {
            "sample_id": list(seeds[0].sample_ids),
            "label": targets.int().numpy(),
            "label_name": pa.DictionaryArray.from_arrays(targets.int().numpy(), names),
            "loss": losses.numpy(),
            "doubt": doubts.numpy(),
            "nearest_label": nearest.numpy(),
            "nearest_label_name": pa.DictionaryArray.from_arrays(nearest.numpy(), names),
            # Without another class there is no margin.
            "label_margin": pa.array(margins.numpy(), mask=(~margins.isfinite()).numpy()),
            "percentile": percentiles(losses).numpy(),
        }
    )


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).mean(dim=0)


def percentiles(scores: Tensor) -> Tensor:
    """Ranks from 0 for the smallest to 1 for the largest; ties get their mean."""
    ordered = scores.sort().values
    low = torch.searchsorted(ordered, scores, side="left")
    high = torch.searchsorted(ordered, scores, side="right") - 1
    return (low + high).float() / max(1, 2 * (len(scores) - 1))


def _place(
    data: Data, choice: DatasetChoice | None, *, has_test: bool
) -> tuple[str, RecordedOptions]:
    """The dataset of the samples and how it was read, as other score files have them."""
    keys = data.model_dump()
    if choice is not None:
        location, split, label_column = choice.location, choice.split, choice.label_column
    elif has_test:
        location, split = data.test or "", keys.get("test_split")
        label_column = keys.get("test_label_column") or data.label_column
    elif isinstance(data.validation, str):
        location, split, label_column = (
            data.validation,
            keys.get("validation_split"),
            data.label_column,
        )
    else:
        location, split, label_column = data.train, data.split, data.label_column
    columns = given(image_column=keys.get("image_column"), label_column=label_column)
    named = given(split=split, id_column=data.id_column)
    return location, RecordedOptions(**columns, **named)


CORRUPTION_CELLS = (
    ("accuracy", "raw"),
    ("nll", "raw"),
    ("adaptive_ece", "raw"),
    ("adaptive_ece", "temperature_nll"),
)


def metrics_table(records: Sequence[Record], *, show_intervals: bool = False) -> str:
    """One row per metric and one column per stage; the records are those of the seeds.

    The ends of the intervals that are shown are averaged over the seeds.
    """
    stages = [stage for stage in STAGES if all(stage in record for record in records)]
    columns = [TEMPERATURE, *COLUMNS.values()]
    rows = []
    for column in columns:
        cells = [
            _cell([record[stage] for record in records], column, show_intervals=show_intervals)
            for stage in stages
        ]
        if any(cell != NO_VALUE for cell in cells):
            rows.append([column.header, *cells])
    return markdown_rows(["metric", *(STAGE_TITLES[stage] for stage in stages)], rows)


def ood_table(records: Sequence[Mapping[str, Any]], *, show_intervals: bool = False) -> str:
    """One row per dataset, stage and score; arguments as in `metrics_table`.

    The order of the largest logits is the same at every temperature, so that they have one row, as
    have Mahalanobis distances, which there may be of some datasets.
    """
    rows = []
    for name, evaluated in records[0].items():
        for stage in STAGES:
            if stage != "raw" and stage not in evaluated:
                continue
            each = [record[name] for record in records]
            at_stage = each if stage == "raw" else [record[stage] for record in each]
            for score in ALL_OOD_SCORES:
                if score not in at_stage[0] or (stage != "raw" and score in UNSCALED):
                    continue
                values = [item[score] for item in at_stage]
                cells = (_cell(values, c, show_intervals=show_intervals) for c in OOD_COLUMNS)
                rows.append([name.replace("|", r"\|"), score, STAGE_TITLES[stage], *cells])
    return markdown_rows(
        ["against", "by", "logits", *(column.header for column in OOD_COLUMNS)], rows
    )


def corruptions_table(records: Sequence[Mapping[str, Mapping[str, Record]]]) -> str:
    """One row per severity, over all corruptions; one per corruption, over all severities."""
    kinds = list(records[0])
    groups = [
        (f"severity {severity}", [(name, str(severity)) for name in kinds])
        for severity in SEVERITIES
    ]
    groups += [
        (name.replace("_", " "), [(name, str(severity)) for severity in SEVERITIES])
        for name in kinds
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
    return markdown_rows(["corrupted by", *titles], rows)


def _mean_over(
    record: Mapping[str, Mapping[str, Record]],
    keys: Sequence[tuple[str, str]],
    metric: str,
    stage: str,
) -> MetricValues:
    values = [record[name][severity].get(stage, {}).get(metric) for name, severity in keys]
    defined = [value for value in values if value is not None]
    return {metric: statistics.fmean(defined) if defined else None}


def _cell(
    seeds: Sequence[Mapping[str, float | None]], column: TableColumn, *, show_intervals: bool
) -> str:
    return _spread(seeds, column) + (_interval(seeds, column) if show_intervals else "")


def _spread(seeds: Sequence[Mapping[str, float | None]], column: TableColumn) -> str:
    """Mean and standard deviation of a metric over the seeds, formatted for its column."""
    values = [value for each in seeds if (value := each.get(column.metric)) is not None]
    if not values:
        return NO_VALUE
    mean = column.shown(statistics.fmean(values))
    return f"{mean} ± {column.shown(statistics.stdev(values))}" if len(values) > 1 else mean


def _interval(seeds: Sequence[Mapping[str, float | None]], column: TableColumn) -> str:
    """The ends of a metric's interval, each averaged over the seeds; "" where there are none."""
    ends = []
    for end in ("low", "high"):
        values = [each.get(f"{column.metric}_{end}") for each in seeds]
        defined = [value for value in values if value is not None]
        if not defined:
            return ""
        ends.append(column.shown(statistics.fmean(defined)))
    return f" [{', '.join(ends)}]"


HEADLINE = ("accuracy", "nll", "adaptive_ece")
"""Metrics of the line that ends a training."""


def describe_result(run: Path, seeds: Sequence[int]) -> str:
    """The metrics of trained seeds without temperature scaling, in one line."""
    folders = [run_folder.seed_folder(run, seed) for seed in seeds]
    records = [run_folder.read_json(each / run_folder.METRICS)["raw"] for each in folders]
    has_test = (folders[0] / run_folder.TEST).exists()
    source = "test data" if has_test else "validation samples"
    over = f", mean ± deviation of {len(seeds)} seeds" if len(seeds) > 1 else ""
    columns = [COLUMNS[metric] for metric in HEADLINE]
    parts = [
        f"{column.title}{UNITS[column.scale]} {_cell(records, column, show_intervals=False)}"
        for column in columns
    ]
    return f"{source}{over}: {', '.join(parts)}"


@dataclass(frozen=True)
class EvaluationRequest:
    """The data to evaluate a run on.

    Attributes:
        data: Dataset of the same classes; None is the recipe's test data.
        ood: Datasets of samples of other classes, with different names.
        mahalanobis: Whether OOD samples are also detected by Mahalanobis distances.
        corruptions: The corrupted images to evaluate on, too; None evaluates on none.
        on_error: What to do with images that cannot be read, "skip" or "stop"; None is what the
            recipe says.
        show_intervals: Whether the tables of metrics and of OOD detection show them too. Those of
            OOD detection are computed only then.
        scores: Score file to write, of the mean loss and doubt of all seeds; None writes none.
    """

    data: DatasetChoice | None = None
    ood: tuple[OodChoice, ...] = ()
    mahalanobis: bool = False
    corruptions: CorruptionChoice | None = None
    on_error: Literal["skip", "stop"] | None = None
    resampling: Resampling = field(default_factory=Resampling)
    show_intervals: bool = False
    scores: Path | None = None


@dataclass(frozen=True)
class _Seed:
    """A finished seed to evaluate."""

    folder: Path
    request: EvaluationRequest
    device: str
    skipped: list[SkippedEntry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    curves: list[NamedCurve] = field(default_factory=list)
    predictions: list[Predictions] = field(default_factory=list)

    def load(self) -> TrainedModel:
        """Loads the model of the seed."""
        trained = load_model(self.folder, self.device)
        data = trained.recipe.data
        self.warnings.extend(describe_own(trained.recipe.model.name, ""))
        if self.request.on_error is not None:
            if data.kind != "images":
                raise ConfigError(
                    f"on_error applies to images, and this run has kind {data.kind!r}",
                    "leave out ",
                    Setting("on_error"),
                    parameter="on_error",
                )
            data = data.model_copy(update={"on_error": self.request.on_error})
        recipe = trained.recipe.model_copy(update={"data": data})
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
    """Evaluates every finished seed and adds the metrics to those in its folder, by names of data.

    Raises:
        TrainingError: No seed is finished, or two OOD datasets have the same name.
    """
    names = [choice.name for choice in request.ood]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise TrainingError(f"two OOD datasets have the name {repeated!r}", "name each once")
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
    records = [_evaluate(seed) for seed in seeds]
    tables = [metrics_table(records, show_intervals=request.show_intervals)]
    if request.ood:
        detections = [_evaluate_ood(seed) for seed in seeds]
        tables.append(ood_table(detections, show_intervals=request.show_intervals))
    _write_curves(run, seeds)
    if request.scores is not None:
        predictions = {seed.folder: seed.predictions[0] for seed in seeds}
        write_prediction_scores(request.scores, run, predictions, request.data)
    if request.corruptions is not None:
        results = [
            evaluate_corruptions(seed.load(), advance, request.corruptions) for seed in seeds
        ]
        for seed, result in zip(seeds, results, strict=True):
            write_metrics(seed.folder / run_folder.CORRUPTIONS, result)
        tables.append(corruptions_table(results))
    for seed in seeds:
        run_folder.write_errors(seed.folder / run_folder.EVALUATION_ERRORS, seed.skipped)
    warn(list(dict.fromkeys(text for seed in seeds for text in seed.warnings)))
    return tables


def _evaluate(seed: _Seed) -> Record:
    """Evaluates one seed and writes the record into its folder."""
    choice, folder, resampling = seed.request.data, seed.folder, seed.request.resampling
    if choice is None:
        record = evaluate_saved_predictions(folder, resampling)
        has_test = (folder / run_folder.TEST).exists()
        source = "the recipe's test data" if has_test else "the validation samples held out"
        predictions, validation = saved_predictions(folder)
    else:
        record, predictions = evaluate_on_dataset(seed.load(), choice, resampling)
        source = choice.name
        validation = validation_predictions(folder)
        write_predictions(folder / run_folder.EVALUATION_PREDICTIONS, predictions)
    seed.predictions.append(predictions)
    intervals = {"level": resampling.level, "resamples": resampling.num_resamples}
    add_records(folder / run_folder.EVALUATION, {source: {"intervals": intervals, **record}})
    seed.curves.extend(
        misclassification_curves(predictions.logits, predictions.targets, validation)
    )
    return record


def _evaluate_ood(seed: _Seed) -> dict[str, Any]:
    trained, request = seed.load(), seed.request
    # With many OOD samples the resamples take longer than everything else.
    resampling = request.resampling if request.show_intervals else None
    features = measure_features(trained) if request.mahalanobis else None
    records = {}
    for choice in request.ood:
        records[choice.name], curves = evaluate_ood_dataset(trained, choice, resampling, features)
        seed.curves.extend(curves)
    add_records(seed.folder / run_folder.OOD, records)
    if features is not None:
        ids = read_predictions(seed.folder / run_folder.TEST).sample_ids
        write_distances(seed.folder / run_folder.DISTANCES, ids, features.distances)
    return records


def _write_curves(run: Path, seeds: Sequence[_Seed]) -> None:
    """Writes the ROC curves of each seed into its folder, and one diagram of all seeds.

    Curves of other OOD datasets, by an earlier evaluation, stay.
    """
    curves = []
    for seed in seeds:
        path = seed.folder / run_folder.ROC
        drawn = {MISCLASSIFICATION, *(choice.name for choice in seed.request.ood)}
        kept = [
            curve
            for curve in (read_curves(path) if path.is_file() else [])
            if curve.detection not in drawn
        ]
        write_curves(path, [*seed.curves, *kept])
        curves += [*seed.curves, *kept]
    diagram = run / run_folder.ROC_DIAGRAM
    if curves:
        draw_roc(curves, diagram)
    else:
        for suffix in FORMATS:
            # The diagram of an earlier evaluation is of other curves.
            diagram.with_suffix(suffix).unlink(missing_ok=True)
