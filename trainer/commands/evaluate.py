"""`difficulty evaluate`: every metric of a run, and of its models on other data."""

from pathlib import Path
from typing import Annotated

import typer

from trainer.commands.options import Device, OnErrorOption

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `difficulty train` wrote.")
]


def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None,
        typer.Option(help="Evaluate on this dataset of the same classes instead of the test data."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Sub-folder or named split of --data.")] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of --data with the labels.")
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(help="Detect the samples of this out-of-distribution dataset; repeatable."),
    ] = None,
    corruptions: Annotated[
        bool,
        typer.Option(
            "--corruptions", help="Evaluate on test images with nineteen kinds of corruption."
        ),
    ] = False,
    write_scores: Annotated[
        Path | None,
        typer.Option(
            metavar="SCORES",
            help="Also write a score file of the loss and the doubt of every sample, mean over the "
            "seeds: .parquet, .csv or .jsonl.",
        ),
    ] = None,
    intervals: Annotated[
        float | None,
        typer.Option(
            metavar="LEVEL",
            help="Show bootstrap intervals of this level, such as 0.95, the level in the files by "
            "default.",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=1, help="Number of resamples of the bootstrap.")
    ] = 1000,
    on_error: OnErrorOption = None,
    device: Device = "auto",
) -> None:
    """Evaluates the models of a run: every metric, before and after temperature scaling.

    Prints mean and standard deviation over the seeds, and writes all metrics into the folders of
    the seeds: evaluation.json, ood.json and corruptions.json. ROC curves are in roc.parquet there,
    and drawn in roc.png and roc.svg in the folder of the run. The classifier's own difficulty of
    each sample is what --write-scores adds.
    """
    from difficulty_service.commands.console import out, print_warnings
    from difficulty_service.images.corruptions import CORRUPTIONS, SEVERITIES
    from difficulty_service.score_file import require_score_file_name
    from trainer.console import watch_passes
    from trainer.metrics.bootstrap import Resampling
    from trainer.reports.evaluation import EvaluationRequest, evaluate_seeds
    from trainer.run_folder import seed_folders
    from trainer.runs.evaluate import DatasetChoice

    if data is None and (split is not None or label_column is not None):
        raise typer.BadParameter(
            "--split and --label-column belong to --data; name that dataset too"
        )
    if on_error is not None and data is None and not ood and not corruptions:
        raise typer.BadParameter(
            "--on-error belongs to --data, --ood and --corruptions; otherwise no image is read"
        )
    if intervals is not None and not 0 < intervals < 1:
        raise typer.BadParameter(
            f"{intervals:g} is not between 0 and 1; give a level such as 0.95",
            param_hint="--intervals",
        )
    if write_scores is not None:
        require_score_file_name(write_scores)
    choice = None if data is None else DatasetChoice(data, split, label_column)
    resampling = Resampling(resamples) if intervals is None else Resampling(resamples, intervals)
    request = EvaluationRequest(
        choice,
        tuple(ood or ()),
        corruptions,
        on_error,
        resampling,
        intervals is not None,
        write_scores,
    )
    passes = len(CORRUPTIONS) * len(SEVERITIES) * len(seed_folders(run)) if corruptions else 0
    with watch_passes(passes) as advance:
        tables = evaluate_seeds(run, request, device, advance, print_warnings)
    for table in tables:
        out.print(table, markup=False)
    if write_scores is not None:
        out.print(f"the loss and the doubt of every sample are in {write_scores}", markup=False)
