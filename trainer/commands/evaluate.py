"""`difficulty evaluate`: every metric of a run, and of its models on other data."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from difficulty_service.base.extras import needs_extra
from difficulty_service.cli.wrong_call import WrongCall
from trainer.commands import Device, OnError


@needs_extra('"difficulty evaluate"', "train")
def evaluate(
    run: Path,
    /,
    *,
    data: str | None = None,
    split: str | None = None,
    label_column: str | None = None,
    ood: list[str] | None = None,
    ood_split: str | None = None,
    ood_column: str | None = None,
    ood_name: str | None = None,
    mahalanobis: bool = False,
    corruptions: bool = False,
    corruption_kinds: Annotated[str | None, Parameter(metavar="NAME,...")] = None,
    corruption_data: Annotated[Path | None, Parameter(metavar="DIR")] = None,
    write_scores: Annotated[Path | None, Parameter(metavar="SCORES")] = None,
    intervals: Annotated[float | None, Parameter(metavar="LEVEL")] = None,
    resamples: PositiveInt = 1000,
    on_error: OnError = None,
    device: Device = "auto",
) -> None:
    """Evaluates the models of a run: every metric, before and after temperature scaling.

    Prints mean and standard deviation over the seeds. In the folder of each seed, it adds all
    metrics by the names of the data (evaluation.json, ood.json, corruptions.json) and ROC curves
    (roc.parquet), and draws them in the folder of the run (roc.png, roc.svg). --write-scores adds
    the classifier's own difficulty of each sample.

    Args:
        run: Folder that `difficulty train` wrote.
        data: Evaluate on this dataset of the same classes instead of the test data.
        split: Sub-folder or named split of --data.
        label_column: Column of --data with the labels.
        ood: Detect the samples of this out-of-distribution dataset, whose labels are ignored;
            repeatable.
        ood_split: Sub-folder or named split of every --ood; for CIFAR-10-C corruption and severity,
            such as gaussian_noise/5.
        ood_column: Column of every --ood with images or texts.
        ood_name: Name of the --ood data in files and tables; default: location, split and column.
        mahalanobis: Detect --ood also by plain and relative Mahalanobis distances, which takes a
            pass over the training data.
        corruptions: Evaluate on corrupted test images: nineteen kinds at five severities.
        corruption_kinds: Kinds of --corruptions, such as fog,gaussian_noise; default: all.
        corruption_data: Published images for --corruptions instead, in the folders of CIFAR-10-C,
            CIFAR-100-C or ImageNet-C.
        write_scores: Also write a score file with loss and doubt of every sample, averaged over the
            seeds: .parquet, .csv or .jsonl.
        intervals: Show bootstrap intervals of this level, such as 0.95, the default in the files.
        resamples: Number of resamples of the bootstrap.
    """
    from difficulty_service.base.devices import current
    from difficulty_service.cli.console import out, print_warnings
    from difficulty_service.images.corruptions import SEVERITIES
    from difficulty_service.scores.file import require_score_file_name
    from trainer.console import print_markdown, watch_passes
    from trainer.metrics.bootstrap import Resampling
    from trainer.reports.evaluation import EvaluationRequest, evaluate_seeds
    from trainer.run_folder import seed_folders
    from trainer.runs.corruptions import CorruptionChoice
    from trainer.runs.evaluate import DatasetChoice, OodChoice

    if data is None and (split is not None or label_column is not None):
        raise WrongCall("--split and --label-column belong to --data; name that dataset too")
    if not ood and (ood_split is not None or ood_column is not None or mahalanobis):
        raise WrongCall(
            "--ood-split, --ood-column and --mahalanobis belong to --ood; name that dataset too"
        )
    if not corruptions and (corruption_kinds is not None or corruption_data is not None):
        raise WrongCall("--corruption-kinds and --corruption-data belong to --corruptions; add it")
    if ood_name is not None and len(ood or ()) != 1:
        raise WrongCall("--ood-name is the name of one --ood dataset")
    if on_error is not None and data is None and not ood and not corruptions:
        raise WrongCall(
            "--on-error belongs to --data, --ood and --corruptions; otherwise no image is read"
        )
    if intervals is not None and not 0 < intervals < 1:
        raise WrongCall(f"--intervals {intervals:g} is not between 0 and 1, such as 0.95")
    if write_scores is not None:
        require_score_file_name(write_scores)
    kinds = None if corruption_kinds is None else tuple(map(str.strip, corruption_kinds.split(",")))
    chosen = CorruptionChoice(kinds, corruption_data) if corruptions else None
    choice = None if data is None else DatasetChoice(data, split, label_column)
    resampling = Resampling(resamples) if intervals is None else Resampling(resamples, intervals)
    request = EvaluationRequest(
        choice,
        tuple(OodChoice(each, ood_split, ood_column, ood_name) for each in ood or ()),
        mahalanobis,
        chosen,
        on_error,
        resampling,
        intervals is not None,
        write_scores,
    )
    passes = (
        0 if chosen is None else len(chosen.places()) * len(SEVERITIES) * len(seed_folders(run))
    )
    with current(device), watch_passes(passes) as advance:
        tables = evaluate_seeds(run, request, device, advance, print_warnings)
    for table in tables:
        print_markdown(table)
    if write_scores is not None:
        out.print(f"the loss and the doubt of every sample are in {write_scores}")
