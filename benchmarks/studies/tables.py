"""The tables of a study: test metrics of the chosen trials, and the searches that chose them."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.studies.trials import Criterion, SearchResult, Study, Trial
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.metrics.proper_scores import nll
from trainer.reports.comparison import compare_runs
from trainer.reports.comparison_table import markdown_table
from trainer.run_folder import VALIDATION

COLUMNS = ("accuracy", "adaptive_ece", "ece", "nll", "misclassification_auroc_msp")


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
            value = trial.settings[-1].partition("=")[2]
            text = f"{value}: {loss:.4f}"
            cells.append(f"**{text}**" if trial == each.best else text)
        constant = each.best.settings[-1].partition("=")[0].rpartition(".")[2]
        print(f"| {each.best.method} | {constant} {', '.join(cells)} |")
    print()


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
