"""The trainer's commands: `difficulty train`, `difficulty evaluate`, `difficulty compare`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trainer.config import Recipe

STOPPED = 143
"""Exit code of a run that a signal ended, after it was saved; 128 + SIGTERM."""

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="TOML file, or the name of a recipe that ships with the package."
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `difficulty train --out` wrote.")
]
RunFolders = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]
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
        Path | None, typer.Option(help="Folder of the run; default: runs/ and the recipe's name.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as optimiser.momentum=0.8."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an earlier run was stopped.")
    ] = False,
    device: Device = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Train this one seed instead of the recipe's.")
    ] = None,
) -> None:
    """Trains a classifier as a recipe says, one run for each of its seeds.

    A run that is killed, or stopped by SIGTERM or Ctrl-C, goes on with `--resume` and ends with
    the same parameters. For several GPUs or machines: `accelerate launch -m difficulty_service
    train ...`.
    """
    from trainer.recipes.file import read_recipe

    chosen = read_recipe(recipe, settings or [])
    if scores is not None:
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
        typer.Option(help="Judge on this dataset of the same classes instead of the test data."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Sub-folder or named split of --data.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column with its labels.")] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(help="Tell the samples of this dataset from the test data; repeatable."),
    ] = None,
    corruptions: Annotated[
        bool,
        typer.Option("--corruptions", help="Judge on test images, corrupted in ten ways."),
    ] = False,
    device: Device = "auto",
) -> None:
    """Judges the models of a run: every metric, before and after temperature scaling.

    Prints mean and standard deviation over the seeds, and writes every number beside the models:
    evaluation.json, ood.json and corruptions.json.
    """
    from trainer.console import out, watch_passes
    from trainer.evaluation.corruptions import CORRUPTIONS, SEVERITIES
    from trainer.reports.evaluation import Wanted, evaluate_seeds
    from trainer.run_folder import seed_folders
    from trainer.runs.evaluate import DatasetChoice

    if data is None and (split is not None or label_column is not None):
        raise typer.BadParameter("--split and --label-column are of --data; name that dataset too")
    choice = None if data is None else DatasetChoice(data, split, label_column)
    wanted = Wanted(choice, tuple(ood or ()), corruptions)
    passes = len(CORRUPTIONS) * len(SEVERITIES) * len(seed_folders(run)) if corruptions else 0
    with watch_passes(passes) as advance:
        tables = evaluate_seeds(run, wanted, device, advance)
    for table in tables:
        out.print(table, markup=False)


def compare(
    runs: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the table here, beside it CSV, JSON and reliability diagrams."),
    ] = None,
) -> None:
    """Sets runs side by side: mean and standard deviation over seeds, the best marked."""
    from trainer.console import out as console
    from trainer.reports.comparison import compare_runs, markdown_table, write_comparison

    comparison = compare_runs(runs)
    console.print(markdown_table(comparison), markup=False)
    if out is not None:
        write_comparison(comparison, out)
        console.print(f"the tables and diagrams are beside {out}", markup=False)


def _train_seed(recipe: "Recipe", seed: int, folder: Path, device: str, *, resume: bool) -> bool:
    """Trains one seed in sight of the person who asked for it."""
    import os

    from trainer.console import err, out, watch_run
    from trainer.run_folder import seed_folder
    from trainer.runs.train import RunRequest, run_seed

    speaks = os.environ.get("RANK", "0") == "0"
    if speaks:
        out.print(f"{recipe.name}, seed {seed}, in {seed_folder(folder, seed)}", markup=False)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    with watch_run(recipe.training.epochs, num_processes, speaks=speaks) as observer:
        finished = run_seed(RunRequest(recipe, seed, folder, device, resume), observer)
    if speaks and not finished:
        err.print("stopped and saved; go on with the same command and --resume", markup=False)
    return finished
