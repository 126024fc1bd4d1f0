"""Many runs of one recipe, side by side: what both studies share.

A trial is a method with its constants; it is run once per seed, in a process of its own thread,
and what was finished before is not run again. Methods are chosen between on validation samples
only; the test samples are looked at once the constants are fixed.
"""

import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Trial:
    """One method with its constants.

    Attributes:
        method: Its name in the table.
        settings: Keys and values over the study's recipe, as `difficulty train --set` takes them.
    """

    method: str
    settings: tuple[str, ...]

    @property
    def folder_name(self) -> str:
        """A name that no other trial has."""
        text = "-".join((self.method, *self.settings))
        return "".join(sign if sign.isalnum() or sign in "-.=_" else "_" for sign in text)


@dataclass(frozen=True)
class Search:
    """A method with one constant to choose.

    Attributes:
        method: Its name in the table.
        settings: Keys and values besides the constant.
        key: Of the constant.
        values: To begin with, ascending; the search goes on beyond an end that is the best.
        least: The search does not go below it.
        most: The search does not go above it.
        factor: From one value to the next, beyond the ends.
        refine: Whether to try the values half-way to the best one's neighbours, too.
    """

    method: str
    settings: tuple[str, ...]
    key: str
    values: tuple[float, ...]
    least: float = 0.0
    most: float = math.inf
    factor: float = math.sqrt(10)
    refine: bool = True

    def trial(self, value: float) -> Trial:
        """The method with this value."""
        return Trial(self.method, (*self.settings, f"{self.key}={value:.3g}"))


@dataclass(frozen=True)
class Study:
    """Where and how trials are run.

    Attributes:
        recipe: Name or path of the recipe.
        settings: Over the recipe, for all trials.
        folder: Of the runs.
        jobs: Processes side by side.
    """

    recipe: str
    settings: tuple[str, ...]
    folder: Path
    jobs: int

    def run_folder(self, trial: Trial) -> Path:
        """Where the seeds of a trial are."""
        return self.folder / trial.folder_name


Judge = Callable[[Study, Trial, Sequence[int]], float]
"""How bad a trial is on validation samples, over some seeds."""


def run_trials(study: Study, trials: Sequence[Trial], seeds: Sequence[int]) -> None:
    """Runs every trial with every seed that is not finished yet; a failure ends the study."""
    wanted = [
        (study, trial, seed)
        for seed in seeds
        for trial in trials
        if not (study.run_folder(trial) / f"seed-{seed}" / "metrics.json").exists()
    ]
    if not wanted:
        return
    # Single threads side by side: on a few cores they train more samples than shared threads.
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // study.jobs))
    context = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    with ProcessPoolExecutor(study.jobs, mp_context=context) as pool:
        futures: dict[Future[None], tuple[Study, Trial, int]] = {
            pool.submit(_run, *each): each for each in wanted
        }
        for done, future in enumerate(as_completed(futures), start=1):
            _, trial, seed = futures[future]
            future.result()
            left = (time.perf_counter() - began) / done * (len(wanted) - done)
            print(
                f"{done}/{len(wanted)} {trial.folder_name} seed {seed}, about {left / 60:.0f} min "
                "left",
                file=sys.stderr,
                flush=True,
            )


@dataclass(frozen=True)
class Found:
    """What a search ended with.

    Attributes:
        best: The trial with the least judgement.
        trials: All that were tried, by value.
        judged: The judgement of each.
    """

    best: Trial
    trials: tuple[Trial, ...]
    judged: tuple[float, ...]


def search(study: Study, searched: Search, seeds: Sequence[int], judge: Judge) -> Found:
    """The value with the least judgement: between two that are worse, or at a bound."""
    values, refined = sorted(searched.values), not searched.refine
    while True:
        trials = [searched.trial(value) for value in values]
        run_trials(study, trials, seeds)
        judged = [judge(study, trial, seeds) for trial in trials]
        best = judged.index(min(judged))
        below, above = values[0] / searched.factor, values[-1] * searched.factor
        if best == 0 and below >= searched.least:
            values.insert(0, below)
        elif best == len(values) - 1 and above <= searched.most:
            values.append(above)
        elif not refined:
            around = pairwise(values[max(0, best - 1) : best + 2])
            values = sorted([*values, *(math.sqrt(low * high) for low, high in around)])
            refined = True
        else:
            return Found(trials[best], tuple(trials), tuple(judged))


def _run(study: Study, trial: Trial, seed: int) -> None:
    from trainer.recipes.file import read_recipe
    from trainer.runs.train import Observer, RunRequest, run_seed
    from trainer.training.checkpoint import Progress
    from trainer.weights.formula import WeightsDistribution

    def begin(_samples: int, _done: Progress, _weights: WeightsDistribution | None) -> None:
        """Nothing to show."""

    recipe = read_recipe(study.recipe, [*study.settings, *trial.settings, f"name={trial.method}"])
    observer = Observer(begin, lambda _samples: None, lambda _record: None, lambda: False)
    run_seed(RunRequest(recipe, seed, study.run_folder(trial), "cpu", resume=True), observer)
