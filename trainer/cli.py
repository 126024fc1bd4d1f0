"""The trainer's commands: `difficulty train`, `difficulty evaluate`, `difficulty compare`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from trainer.config import Recipe

STOPPED = 143
"""Exit code of a run that was saved and stopped by a signal: 128 + SIGTERM."""

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="TOML file, or the name of a recipe that ships with the package."
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `difficulty train` wrote.")
]
RunFolders = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]
OnErrorOption = Annotated[
    Literal["skip", "stop"] | None,
    typer.Option(
        "--on-error",
        help="skip: check all images first, list unreadable ones and go on; default: as the recipe "
        "says, else skip.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    for command in (train, evaluate, compare):
        app.command()(command)


def train(
    recipe: RecipeName,
    scores: Annotated[
        Path | None,
        typer.Option(help="Score file, for a recipe with regulariser.weights = 'scores'."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run; default: runs/NAME, by the recipe's name."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a key, such as optimiser.momentum=0.8."
        ),
    ] = None,
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
    from trainer.recipes.checks import NEEDS_WEIGHTS
    from trainer.recipes.file import read_recipe

    on_error_settings = [] if on_error is None else [f"data.on_error={on_error}"]
    chosen = read_recipe(recipe, [*(settings or []), *on_error_settings])
    if scores is not None:
        if chosen.regulariser.weights != "scores":
            raise typer.BadParameter(f"{scores} {NEEDS_WEIGHTS}", param_hint="--scores")
        chosen = replace(chosen, regulariser=replace(chosen.regulariser, scores=str(scores)))
    seeds = chosen.training.seeds if seed is None else (seed,)
    folder = out or Path("runs") / chosen.name
    for each in seeds:
        if not _train_seed(chosen, each, folder, device, resume=resume):
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


def compare(
    runs: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option(help="Markdown file for the table; CSV, JSON and diagrams go next to it."),
    ] = None,
) -> None:
    """Compares runs: mean and standard deviation over seeds, with the best in bold."""
    from difficulty_service.commands.console import out as console
    from trainer.reports.comparison import compare_runs, markdown_table, write_comparison

    comparison = compare_runs(runs)
    console.print(markdown_table(comparison), markup=False)
    if out is not None:
        write_comparison(comparison, out)
        console.print(f"tables and diagrams written next to {out}", markup=False)


def _train_seed(recipe: "Recipe", seed: int, folder: Path, device: str, *, resume: bool) -> bool:
    """Trains one seed and shows its progress; returns whether it is finished."""
    import os

    from difficulty_service.commands.console import err, out
    from trainer.console import watch_run
    from trainer.run_folder import seed_folder
    from trainer.runs.train import RunRequest, run_seed

    is_main = os.environ.get("RANK", "0") == "0"
    if is_main:
        out.print(f"{recipe.name}, seed {seed}, in {seed_folder(folder, seed)}", markup=False)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    with watch_run(recipe.training.epochs, num_processes, is_main=is_main) as callbacks:
        finished = run_seed(RunRequest(recipe, seed, folder, device, resume), callbacks)
    if is_main and not finished:
        err.print("stopped and saved; resume with the same command and --resume", markup=False)
    return finished
