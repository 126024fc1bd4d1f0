"""The trainer's commands: `difficulty train`, `evaluate`, `compare` and `sweep`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from trainer.commands.compare import compare
from trainer.commands.options import STOPPED, Device, RecipeName, ScoresOption, Settings
from trainer.commands.sweep import sweep

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `difficulty train` wrote.")
]
OnErrorOption = Annotated[
    Literal["skip", "stop"] | None,
    typer.Option(
        "--on-error",
        help="skip: check all images first, list unreadable ones and go on; default: as the recipe "
        "says, else skip.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    for command in (train, evaluate, compare, sweep):
        app.command()(command)


def train(
    recipe: RecipeName,
    scores: ScoresOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run; default: runs/NAME, by the recipe's name."),
    ] = None,
    settings: Settings = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume a run that was stopped.")
    ] = False,
    device: Device = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Train this seed instead of the recipe's seeds.")
    ] = None,
    on_error: OnErrorOption = None,
) -> None:
    """Trains a classifier from a recipe, one run for each of its seeds.

    A run that was killed, or stopped by SIGTERM or Ctrl-C, resumes with `--resume` and ends with
    the same parameters. For several GPUs or machines: `accelerate launch -m difficulty_service
    train ...`.
    """
    from trainer.console import train_seed
    from trainer.recipes.effects import NEEDS_WEIGHTS
    from trainer.recipes.file import read_recipe
    from trainer.recipes.overrides import keys_of_overrides, split_overrides

    changes = list(settings or [])
    changed = keys_of_overrides(split_overrides(changes))
    for option, value, key in (
        ("--scores", scores, "regulariser.scores"),
        ("--seed", seed, "training.seeds"),
        ("--on-error", on_error, "data.on_error"),
    ):
        if value is not None and key in changed:
            raise typer.BadParameter(f"{option} and --set {key} exclude each other; give one")
    if on_error is not None:
        changes.append(f"data.on_error={on_error}")
    chosen = read_recipe(recipe, changes)
    if scores is not None:
        if chosen.regulariser.weights != "scores":
            raise typer.BadParameter(f"{scores} {NEEDS_WEIGHTS}", param_hint="--scores")
        chosen = replace(chosen, regulariser=replace(chosen.regulariser, scores=str(scores)))
    seeds = chosen.training.seeds if seed is None else (seed,)
    folder = out or Path("runs") / chosen.name
    for each in seeds:
        if not train_seed(chosen, each, folder, device, resume=resume):
            raise typer.Exit(STOPPED)


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
        typer.Option("--corruptions", help="Evaluate on test images with ten kinds of corruption."),
    ] = False,
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
    and drawn in roc.png and roc.svg in the folder of the run.
    """
    from difficulty_service.commands.console import out, print_warnings
    from trainer.console import watch_passes
    from trainer.evaluation.corruptions import CORRUPTIONS, SEVERITIES
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
    choice = None if data is None else DatasetChoice(data, split, label_column)
    resampling = Resampling(resamples) if intervals is None else Resampling(resamples, intervals)
    request = EvaluationRequest(
        choice, tuple(ood or ()), corruptions, on_error, resampling, intervals is not None
    )
    passes = len(CORRUPTIONS) * len(SEVERITIES) * len(seed_folders(run)) if corruptions else 0
    with watch_passes(passes) as advance:
        tables = evaluate_seeds(run, request, device, advance, print_warnings)
    for table in tables:
        out.print(table, markup=False)
