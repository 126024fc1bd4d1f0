"""The tables of a study: test metrics of the chosen trials, and the searches that chose them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.studies.trials import Criterion, SearchResult, Study, Trial
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.metrics.proper_scores import nll
from trainer.reports.comparison import compare_runs, summarise
from trainer.reports.comparison_table import markdown_table
from trainer.run_folder import VALIDATION

COLUMNS = ("accuracy", "adaptive_ece", "ece", "nll", "misclassification_auroc_msp")

CSV_COLUMNS = {
    "accuracy": ("accuracy", 100, 2),
    "adaptive_ece": ("adaptive_ece", 100, 2),
    "nll": ("nll", 1, 4),
    "auroc": ("misclassification_auroc_msp", 100, 2),
}
"""Columns of a CSV file: metric, factor and number of decimals."""


def validation_nll(study: Study, trial: Trial, seeds: Sequence[int]) -> float:
    """Mean NLL of the validation samples over some seeds, with the labels of the run."""
    return _mean_nll(study, trial, seeds, lambda predictions: predictions)


def validation_nll_with(labels: Mapping[str, int]) -> Criterion:
    """A criterion that takes the mean NLL with other labels, by sample id."""
    import torch

    def relabelled(predictions: Predictions) -> Predictions:
        targets = torch.tensor([labels[sample_id] for sample_id in predictions.sample_ids])
        return Predictions(predictions.sample_ids, predictions.logits, targets)

    return lambda study, trial, seeds: _mean_nll(study, trial, seeds, relabelled)


def seed_metrics(study: Study, trial: Trial, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Metrics of a trial's test samples by seed, in the form that differences are taken of."""
    folder = study.run_folder(trial)
    return {
        seed: {"metrics": json.loads((folder / f"seed-{seed}" / "metrics.json").read_text())}
        for seed in seeds
    }


def print_test_table(study: Study, trials: Sequence[Trial]) -> None:
    """Prints the test metrics of some trials over all their seeds."""
    comparison = compare_runs([study.run_folder(trial) for trial in trials])
    print(markdown_table(comparison, COLUMNS))


def print_searches(results: Sequence[SearchResult]) -> None:
    """Prints the values that every search tried."""
    print("| method | constant: NLL of the validation samples, the chosen one bold |")
    print("| --- | --- |")
    for each in results:
        cells = []
        for trial, loss in zip(each.trials, each.losses, strict=True):
            text = f"{_constant(trial)[1]}: {loss:.4f}"
            cells.append(f"**{text}**" if trial == each.best else text)
        print(f"| {each.best.method} | {_constant(each.best)[0]} {', '.join(cells)} |")
    print()


def table_rows(
    study: Study, trials: Sequence[Trial], results: Sequence[SearchResult]
) -> list[dict[str, str]]:
    """Test metrics as trained, a row for each trial, with the constant that a search chose.

    Keys are those of CSV_COLUMNS: mean and sample standard deviation over the seeds, accuracy,
    adaptive ECE and AUROC in percent.
    """
    chosen = {each.best: _chosen(each) for each in results}
    rows = []
    for trial, run in zip(
        trials, compare_runs([study.run_folder(each) for each in trials]).runs, strict=True
    ):
        row = {"method": trial.method, "chosen": chosen.get(trial, "")}
        for name, (metric, scale, decimals) in CSV_COLUMNS.items():
            summary = summarise(run, "raw", metric)
            assert summary is not None  # noqa: S101 - every run has test samples
            row[name] = f"{scale * summary.mean:.{decimals}f}"
            row[f"{name}_sd"] = f"{scale * (summary.std or 0.0):.{decimals}f}"
        rows.append(row)
    return rows


def _chosen(result: SearchResult) -> str:
    least, most = (_constant(result.trials[end])[1] for end in (0, -1))
    return f"{' '.join(_constant(result.best))} of {least} to {most}"


def _constant(trial: Trial) -> tuple[str, str]:
    """Name and value of the constant that a search has set last."""
    key, _, value = trial.settings[-1].partition("=")
    return key.rpartition(".")[2], value


def _mean_nll(
    study: Study,
    trial: Trial,
    seeds: Sequence[int],
    prepare: Callable[[Predictions], Predictions],
) -> float:
    folder = study.run_folder(trial)
    files = [folder / f"seed-{seed}" / VALIDATION for seed in seeds]
    predictions = [prepare(read_predictions(file)) for file in files]
    return sum(nll(each.logits, each.targets) for each in predictions) / len(predictions)
