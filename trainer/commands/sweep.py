"""`difficulty sweep`: one run for every combination of values, and their comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.base.extras import needs_extra
from trainer.commands import (
    STOPPED,
    Device,
    Engine,
    Jobs,
    Level,
    RayAddress,
    Recipe,
    Resamples,
    Scores,
    Settings,
    SeveralSeeds,
    several_seeds,
)
from trainer.commands.compare import show_comparison

if TYPE_CHECKING:
    from trainer.runs.sweep import SweptRun


@needs_extra('"difficulty sweep"', "train")
def sweep(
    recipe: Recipe,
    /,
    *,
    over: Annotated[list[str], Parameter(metavar="KEY=VALUE,...")],
    scores: Scores = None,
    out: Path | None = None,
    settings: Settings = None,
    resume: bool = False,
    dry_run: bool = False,
    device: Device = "auto",
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    level: Level = 0.95,
    resamples: Resamples = 1000,
) -> None:
    """Trains a recipe with every combination of values, and compares the runs.

    All combinations are checked before the first one is trained. A run with alpha 0 has no entropy
    term, whatever the weights. A sweep that was killed, or stopped by SIGTERM or Ctrl-C, goes on
    with `--resume`. The comparison is written to comparison.md in the folder of the sweep.

    Args:
        over: Key and its values, such as regulariser.alpha=0,0.1,0.3; repeatable, for every
            combination.
        out: Folder with a folder for each run; default: runs/NAME-sweep.
        resume: Keep the runs that are finished and finish the others.
        dry_run: Check and list the runs without training.
    """
    import os

    from trainer.runs.sweep import SweepRequest, plan_sweep

    several = several_seeds(device, jobs, engine, ray_address)
    request = SweepRequest(recipe, over, settings or (), scores, out, resume or dry_run)
    runs = plan_sweep(request)
    is_main = os.environ.get("RANK", "0") == "0"
    if is_main:
        _list_runs(runs)
    if dry_run:
        return
    failed = _train(runs, device) if several is None else _train_side_by_side(runs, several)
    finished = [run.folder for run in runs if run.num_finished]
    if is_main and finished:
        show_comparison(finished, finished[0].parent / "comparison.md", level, resamples)
    if failed:
        raise SystemExit(1)


def _list_runs(runs: Sequence["SweptRun"]) -> None:
    from difficulty_service.cli.console import out

    for run in runs:
        seeds = len(run.recipe.training.seeds)
        started = f", {run.num_finished} finished" if run.num_started else ""
        noun = "seed" if seeds == 1 else "seeds"
        out.print(f"{run.label}: {seeds} {noun}{started}, in {run.folder}")


def _train(runs: Sequence["SweptRun"], device: str) -> int:
    """Trains every seed that is not finished; returns the number of runs that failed.

    Raises:
        SystemExit: A signal stopped the sweep.
    """
    from difficulty_service.base.errors import TrainingError
    from difficulty_service.cli.console import err
    from trainer.console import train_seed
    from trainer.runs.train import stop_on_signals

    failed = 0
    with stop_on_signals() as received_signal:
        for run in runs:
            try:
                for seed in run.recipe.training.seeds:
                    finished = train_seed(run.recipe, seed, run.folder, device, resume=True)
                    if not finished or received_signal():
                        raise _stopped(runs)
            except TrainingError as error:
                # One set of values may diverge; the others are worth training.
                failed += 1
                err.print(f"error: {run.label}: {' '.join(str(error).split())}")
    return failed


def _train_side_by_side(runs: Sequence["SweptRun"], several: SeveralSeeds) -> int:
    """As `_train`, with several seeds at once."""
    from trainer.commands.places import SeedToTrain
    from trainer.commands.side_by_side import train_side_by_side

    seeds = [
        SeedToTrain(f"{run.label}, seed {seed}", run.recipe, seed, run.folder, resume=True)
        for run in runs
        for seed in run.recipe.training.seeds
    ]
    codes = train_side_by_side(seeds, several, runs[0].folder.parent)
    if STOPPED in codes:
        raise _stopped(runs)
    return len({seed.folder for seed, code in zip(seeds, codes, strict=True) if code})


def _stopped(runs: Sequence["SweptRun"]) -> SystemExit:
    """The end of a sweep that a signal stopped, once it is said how far it came."""
    from difficulty_service.cli.console import err

    done = [each.num_finished == len(each.recipe.training.seeds) for each in runs]
    err.print(
        f"{sum(done)} of {len(runs)} runs of the sweep are finished; go on with the same command "
        "and --resume",
    )
    return SystemExit(STOPPED)
