"""What a study prints: the test metrics of the chosen trials, and what they were chosen from."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.studies.trials import Found, Judge, Study, Trial
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.metrics.proper_scores import nll
from trainer.reports.comparison import compare_runs, markdown_table
from trainer.run_folder import VALIDATION

COLUMNS = ("accuracy", "adaptive_ece", "ece", "nll", "misclassification_auroc_msp")


def validation_nll(study: Study, trial: Trial, seeds: Sequence[int]) -> float:
    """Mean NLL of the validation samples over some seeds, with the labels of the run."""
    return _mean_nll(study, trial, seeds, lambda said: said)


def validation_nll_with(labels: Mapping[str, int]) -> Judge:
    """The same with other labels, by sample id."""
    import torch

    def relabelled(said: Predictions) -> Predictions:
        targets = torch.tensor([labels[sample_id] for sample_id in said.sample_ids])
        return Predictions(said.sample_ids, said.logits, targets)

    return lambda study, trial, seeds: _mean_nll(study, trial, seeds, relabelled)


def print_test_table(study: Study, trials: Sequence[Trial]) -> None:
    """Prints the test metrics of some trials over all their seeds."""
    comparison = compare_runs([study.run_folder(trial) for trial in trials])
    print(markdown_table(comparison, COLUMNS))


def print_searches(found: Sequence[Found]) -> None:
    """Prints what every searched constant was chosen from."""
    print("| method | constant: NLL of the validation samples, the chosen one bold |")
    print("| --- | --- |")
    for each in found:
        cells = []
        for trial, judged in zip(each.trials, each.judged, strict=True):
            value = trial.settings[-1].partition("=")[2]
            text = f"{value}: {judged:.4f}"
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
    said = [prepare(read_predictions(folder / f"seed-{seed}" / VALIDATION)) for seed in seeds]
    return sum(nll(each.logits, each.targets) for each in said) / len(said)
