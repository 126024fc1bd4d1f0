"""Evaluates every seed of a run: files in the folders of the seeds, and tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from difficulty_service.errors import ConfigError, Setting, TrainingError
from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import write_metrics
from trainer.evaluation.roc_file import NamedCurve, misclassification_curves, write_curves
from trainer.metrics.bootstrap import Resampling
from trainer.own_code import describe_own
from trainer.reports.evaluation_table import corruptions_table, metrics_table, ood_table
from trainer.reports.pictures import FORMATS
from trainer.reports.prediction_scores import write_prediction_scores
from trainer.reports.roc_diagram import draw_roc
from trainer.runs.evaluate import (
    DatasetChoice,
    Record,
    TrainedModel,
    evaluate_corruptions,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    evaluate_saved_predictions,
    load_model,
    saved_predictions,
    validation_predictions,
)
from trainer.samples import Samples, SkippedEntry


@dataclass(frozen=True)
class EvaluationRequest:
    """The data to evaluate a run on.

    Attributes:
        data: Dataset of the same classes; None is the recipe's test data.
        ood: Locations of out-of-distribution datasets.
        corruptions: Whether to evaluate on corrupted test images.
        on_error: What to do with images that cannot be read, "skip" or "stop"; None is what the
            recipe says.
        resampling: Bootstrap settings of the intervals that are written.
        show_intervals: Whether the tables of metrics and of OOD detection show them too. Those of
            OOD detection are computed only then.
        scores: Score file to write, of the mean loss and doubt of all seeds; None writes none.
    """

    data: DatasetChoice | None = None
    ood: tuple[str, ...] = ()
    corruptions: bool = False
    on_error: Literal["skip", "stop"] | None = None
    resampling: Resampling = field(default_factory=Resampling)
    show_intervals: bool = False
    scores: Path | None = None


@dataclass(frozen=True)
class _Seed:
    """A finished seed to evaluate.

    Attributes:
        folder: Folder of the seed.
        request: Data to evaluate on.
        device: "auto", "cpu", "cuda", ...
        skipped: Receives the entries of the opened datasets that are not used.
        warnings: Receives the warnings about the opened datasets.
        curves: Receives the ROC curves.
        predictions: Receives the predictions that it was evaluated on.
    """

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
        TrainingError: No seed is finished, or scores are to be written and the seeds were evaluated
            on different samples.
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
    records = [_evaluate(seed) for seed in seeds]
    tables = [metrics_table(records, show_intervals=request.show_intervals)]
    if request.ood:
        detections = [_evaluate_ood(seed) for seed in seeds]
        tables.append(ood_table(detections, show_intervals=request.show_intervals))
    _write_curves(run, seeds)
    if request.scores is not None:
        predictions = {seed.folder: seed.predictions[0] for seed in seeds}
        write_prediction_scores(request.scores, run, predictions, request.data)
    if request.corruptions:
        results = [evaluate_corruptions(seed.load(), advance) for seed in seeds]
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
        source = _source_of_saved_predictions(folder)
        predictions, validation = saved_predictions(folder)
    else:
        record, predictions = evaluate_on_dataset(seed.load(), choice, resampling)
        source = choice.location
        validation = validation_predictions(folder)
        write_predictions(folder / run_folder.EVALUATION_PREDICTIONS, predictions)
    seed.predictions.append(predictions)
    intervals = {"level": resampling.level, "resamples": resampling.num_resamples}
    written = {"data": source, "intervals": intervals, **record}
    write_metrics(folder / run_folder.EVALUATION, written)
    seed.curves.extend(
        misclassification_curves(predictions.logits, predictions.targets, validation)
    )
    return record


def _source_of_saved_predictions(folder: Path) -> str:
    """The data that the saved predictions of a run are for."""
    has_test = (folder / run_folder.TEST).exists()
    return "the recipe's test data" if has_test else "the validation samples held out"


def _evaluate_ood(seed: _Seed) -> dict[str, Any]:
    trained, request = seed.load(), seed.request
    # With many OOD samples the resamples take longer than everything else.
    resampling = request.resampling if request.show_intervals else None
    records = {}
    for location in request.ood:
        records[location], curves = evaluate_ood_dataset(trained, location, resampling)
        seed.curves.extend(curves)
    write_metrics(seed.folder / run_folder.OOD, records)
    return records


def _write_curves(run: Path, seeds: Sequence[_Seed]) -> None:
    """Writes the ROC curves of each seed into its folder, and one diagram of all seeds."""
    for seed in seeds:
        write_curves(seed.folder / run_folder.ROC, seed.curves)
    curves = [curve for seed in seeds for curve in seed.curves]
    diagram = run / run_folder.ROC_DIAGRAM
    if curves:
        draw_roc(curves, diagram)
    else:
        for suffix in FORMATS:
            # The diagram of an earlier evaluation is of other curves.
            diagram.with_suffix(suffix).unlink(missing_ok=True)
