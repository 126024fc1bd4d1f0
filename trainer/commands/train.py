"""`difficulty train`: a recipe in, a folder of a run out."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt

from difficulty_service.base.extras import needs_extra
from difficulty_service.cli.wrong_call import WrongCall
from trainer.commands import (
    STOPPED,
    Device,
    Engine,
    Jobs,
    OnError,
    RayAddress,
    Recipe,
    Scores,
    Settings,
    SeveralSeeds,
    several_seeds,
)

if TYPE_CHECKING:
    from trainer.config import Recipe as ReadRecipe


@needs_extra('"difficulty train"', "train")
def train(
    recipe: Recipe | None = None,
    /,
    *,
    list_recipes: Annotated[bool, Parameter("--list")] = False,
    scores: Scores = None,
    out: Path | None = None,
    settings: Settings = None,
    write_dynamics: Annotated[Path | None, Parameter(metavar="SCORES")] = None,
    resume: bool = False,
    device: Device = "auto",
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    seed: NonNegativeInt | None = None,
    on_error: OnError = None,
) -> None:
    """Trains a classifier from a recipe, one run for each of its seeds.

    A run that was killed, or stopped by SIGTERM or Ctrl-C, resumes with `--resume` and ends with
    the same parameters. For several GPUs or machines: `accelerate launch -m difficulty_service
    train ...`.

    Args:
        list_recipes: List the shipped recipes, and train none.
        out: Folder of the run; default: runs/NAME of the recipe.
        write_dynamics: Also write a score file with how each training sample was learned over the
            epochs and seeds.
        resume: Resume a run that was stopped.
        seed: Train only this seed, instead of all seeds of the recipe.
    """
    if list_recipes:
        given = (recipe, scores, out, settings, write_dynamics, jobs, ray_address, seed, on_error)
        flags = (resume, device != "auto", engine != "local")
        if any(flags) or any(each is not None for each in given):
            raise WrongCall("--list trains nothing, so a recipe or an option would change nothing")
        print_recipes()
        return
    if recipe is None:
        raise WrongCall("difficulty train needs RECIPE; --list shows those that ship with it")
    from trainer.console import train_seed

    changes = list(settings or [])
    _refuse_both(changes, scores, seed, on_error, write_dynamics)
    if on_error is not None:
        changes.append(f"data.on_error={on_error}")
    if write_dynamics is not None:
        changes.append("training.dynamics=true")
    chosen = _read(recipe, changes, scores)
    seeds = chosen.training.seeds if seed is None else (seed,)
    folder = out or Path("runs") / chosen.name
    several = several_seeds(device, jobs, engine, ray_address)
    if several is not None:
        _train_side_by_side(chosen, seeds, folder, several, resume=resume)
    else:
        for each in seeds:
            if not train_seed(chosen, each, folder, device, resume=resume):
                raise SystemExit(STOPPED)
    print_result(folder, seeds)
    if write_dynamics is not None:
        _write_dynamics(write_dynamics, folder, seeds)


def _refuse_both(
    changes: Sequence[str],
    scores: Path | None,
    seed: int | None,
    on_error: str | None,
    write_dynamics: Path | None,
) -> None:
    """Refuses an option beside the key of a recipe that it stands for, and a wrong file name."""
    from trainer.recipes.overrides import SCORE_KEYS, keys_of_overrides, split_overrides

    changed = keys_of_overrides(split_overrides(changes))
    for option, value, key in (
        *(("--scores", scores, key) for key in SCORE_KEYS),
        ("--seed", seed, "training.seeds"),
        ("--on-error", on_error, "data.on_error"),
        ("--write-dynamics", write_dynamics, "training.dynamics"),
    ):
        if value is not None and key in changed:
            raise WrongCall(f"{option} and --set {key} exclude each other; give one")
    if write_dynamics is not None:
        from difficulty_service.scores.file import require_score_file_name

        require_score_file_name(write_dynamics)


def _read(recipe: str, changes: Sequence[str], scores: Path | None) -> "ReadRecipe":
    """The recipe with what a call changes."""
    from trainer.recipes.file import read_recipe
    from trainer.recipes.overrides import NEEDS_SCORES, used_scores, with_scores

    chosen = read_recipe(recipe, changes)
    if scores is None:
        return chosen
    if not used_scores(chosen):
        raise WrongCall(f"--scores {scores} {NEEDS_SCORES}")
    return with_scores(chosen, str(scores))


def _write_dynamics(path: Path, folder: Path, seeds: Sequence[int]) -> None:
    """Writes the score file of how samples were learned, by the main process."""
    from difficulty_service.cli.console import out
    from trainer.reports.dynamics import write_dynamics_scores

    if os.environ.get("RANK", "0") == "0":
        write_dynamics_scores(path, folder, seeds)
        out.print(f"how each training sample was learned is in {path}")


def print_result(folder: Path, seeds: Sequence[int]) -> None:
    """Prints the metrics as trained, where the models are, and the command that evaluates them."""
    from difficulty_service.base.wording import count_of
    from difficulty_service.cli.console import out
    from trainer.reports.evaluation import describe_result

    if os.environ.get("RANK", "0") == "0":
        out.print(describe_result(folder, seeds))
        out.print(
            f"{count_of(len(seeds), 'model')} in {folder}; next: difficulty evaluate {folder}",
        )


def _train_side_by_side(
    recipe: "ReadRecipe",
    seeds: Sequence[int],
    folder: Path,
    several: SeveralSeeds,
    *,
    resume: bool,
) -> None:
    """Trains seeds at once; ends with the code of an error, else with that of a stop."""
    from trainer.commands.places import SeedToTrain
    from trainer.commands.side_by_side import train_side_by_side

    if len(seeds) == 1 and several.jobs is not None:
        raise WrongCall(f"--jobs {several.jobs} has no effect on one seed; leave it out")
    runs = [SeedToTrain(f"seed {seed}", recipe, seed, folder, resume) for seed in seeds]
    codes = train_side_by_side(runs, several, folder)
    if any(codes):
        raise SystemExit(next((code for code in codes if code not in {0, STOPPED}), STOPPED))


def print_recipes() -> None:
    """Prints the name and the first line of every recipe that ships with the package."""
    from difficulty_service.cli.console import out, print_table
    from trainer.recipes.file import shipped_recipes

    with_titles = [
        (name, file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "))
        for name, file in shipped_recipes().items()
    ]
    print_table(("recipe", "what it trains"), with_titles)
    out.print("\ntrain one: difficulty train RECIPE --set KEY=VALUE")
