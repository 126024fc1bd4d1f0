"""What a study prints: the test metrics of the chosen trials, and what they were chosen from."""

from collections.abc import Sequence

from benchmarks.studies.trials import Study, Trial
from trainer.metrics.proper_scores import nll
from trainer.prediction_file import read_predictions
from trainer.report import compare_runs, markdown_table
from trainer.run_folder import VALIDATION

COLUMNS = ("accuracy", "adaptive_ece", "ece", "nll", "misclassification_auroc_msp")


def validation_nll(study: Study, trial: Trial, seeds: Sequence[int]) -> float:
    """Mean NLL of the validation samples over some seeds."""
    folder = study.run_folder(trial)
    said = [read_predictions(folder / f"seed-{seed}" / VALIDATION) for seed in seeds]
    return sum(nll(each.logits, each.targets) for each in said) / len(said)


def print_tables(
    study: Study, trials: Sequence[Trial], seeds: Sequence[int], searched: Sequence[Trial]
) -> None:
    """Prints test metrics over all seeds, then the constants chosen and not chosen."""
    comparison = compare_runs([study.run_folder(trial) for trial in trials])
    print(markdown_table(comparison, COLUMNS))
    print("\nchosen by the NLL of the validation samples:\n")
    print("| method | constants | validation NLL | |\n| --- | --- | --- | --- |")
    rows = sorted({*trials, *searched}, key=lambda trial: (trial.method, trial.settings))
    for trial in rows:
        own = ", ".join(setting for setting in trial.settings if "scores" not in setting)
        loss = validation_nll(study, trial, seeds[:1])
        print(f"| {trial.method} | {own} | {loss:.4f} | {'chosen' if trial in trials else ''} |")
