"""Many parallel runs of one recipe, for both studies.

A trial is a method with its constants. It is run once per seed, each run in a process with one
thread, and finished runs are not repeated. Constants are chosen on validation samples only; the
test samples are evaluated once the constants are fixed.
"""

import hashlib
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from difficulty_service.base.apart import signal_after_parent
from difficulty_service.base.threads import num_workers
from trainer.config import Recipe
from trainer.recipes.file import read_recipe

LONGEST_NAME = 250
"""Largest length of the name of a folder; file systems take 255 bytes."""


@dataclass(frozen=True)
class Trial:
    """One method with its constants.

    Attributes:
        method: Its name in the table.
        settings: Changes to the study's recipe, in the form of `difficulty train --set`.
    """

    method: str
    settings: tuple[str, ...]

    @property
    def folder_name(self) -> str:
        """A name that is unique to the trial."""
        text = "-".join((self.method, *self.settings))
        name = "".join(sign if sign.isalnum() or sign in "-.=_" else "_" for sign in text)
        if len(name) <= LONGEST_NAME:
            return name
        return f"{name[: LONGEST_NAME - 17]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Search:
    """A method with one constant to choose.

    Attributes:
        method: Its name in the table.
        settings: Changes to the recipe besides the constant.
        key: Key of the constant in the recipe.
        values: Initial values, ascending; the search continues beyond an end that is the best.
        least: Lower bound of the search.
        most: Upper bound of the search.
        factor: Ratio of neighbouring values beyond the ends.
        refine: Whether to also try the values half-way to the neighbours of the best one.
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
    """The settings that all trials share.

    Attributes:
        recipe: Name or path of the recipe.
        settings: Changes to the recipe for all trials.
        folder: Folder of the runs.
        jobs: Number of parallel processes.
        device: Device of the trainer, which several processes may share.
    """

    recipe: str
    settings: tuple[str, ...]
    folder: Path
    jobs: int
    device: str = "cpu"

    def run_folder(self, trial: Trial) -> Path:
        """The folder of a trial's run."""
        return self.folder / trial.folder_name

    def recipe_of(self, trial: Trial) -> Recipe:
        """The complete recipe of a trial.

        Raises:
            ConfigError: A setting is unknown, or has no effect.
        """
        settings = [*self.settings, *trial.settings, f"name={trial.method}"]
        return read_recipe(self.recipe, settings)


Criterion = Callable[[Study, Trial, Sequence[int]], float]
"""Loss of a trial on validation samples, over some seeds; smaller is better."""


def run_trials(study: Study, trials: Sequence[Trial], seeds: Sequence[int]) -> None:
    """Runs every trial with every seed that is not finished yet; a failure ends the study."""
    unfinished = [
        (study, trial, seed)
        for seed in seeds
        for trial in trials
        if not (study.run_folder(trial) / f"seed-{seed}" / "metrics.json").exists()
    ]
    if not unfinished:
        return
    for _, trial, _ in unfinished:
        # A mistake in the last trial's settings is said before hours of training, not after.
        study.recipe_of(trial)
    # On a few cores, processes with one thread each train more samples than shared threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, num_workers() // study.jobs)))
    context = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    # A study that is killed leaves no training behind.
    end = partial(signal_after_parent, signal.SIGTERM)
    with ProcessPoolExecutor(study.jobs, context, end) as pool:
        futures: dict[Future[None], tuple[Study, Trial, int]] = {
            pool.submit(_run, *each): each for each in unfinished
        }
        for done, future in enumerate(as_completed(futures), start=1):
            _, trial, seed = futures[future]
            future.result()
            left = (time.perf_counter() - began) / done * (len(unfinished) - done)
            print(
                f"{done}/{len(unfinished)} {trial.folder_name} seed {seed}, "
                f"about {left / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        best: Trial with the smallest loss.
        trials: All trials, in ascending order of the value.
        losses: Loss of each trial.
    """

    best: Trial
    trials: tuple[Trial, ...]
    losses: tuple[float, ...]


def search_all(
    study: Study, searches: Sequence[Search], seeds: Sequence[int], criterion: Criterion
) -> list[SearchResult]:
    """The value of each method with the smallest loss: between two that are worse, or a bound.

    The trials of all searches run together, so that no process waits for the end of one search.
    """
    steps = [_search(study, each, seeds, criterion) for each in searches]
    waiting = {number: next(each) for number, each in enumerate(steps)}
    results: dict[int, SearchResult] = {}
    while waiting:
        run_trials(study, [trial for trials in waiting.values() for trial in trials], seeds)
        for number in list(waiting):
            try:
                waiting[number] = next(steps[number])
            except StopIteration as end:
                results[number] = end.value
                del waiting[number]
    return [results[number] for number in range(len(searches))]


def _search(
    study: Study, searched: Search, seeds: Sequence[int], criterion: Criterion
) -> Generator[list[Trial], None, SearchResult]:
    """Yields trials that must have run before it goes on."""
    values, refined = sorted(searched.values), not searched.refine
    while True:
        trials = [searched.trial(value) for value in values]
        yield trials
        losses = [criterion(study, trial, seeds) for trial in trials]
        best = losses.index(min(losses))
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
            return SearchResult(trials[best], tuple(trials), tuple(losses))


def _run(study: Study, trial: Trial, seed: int) -> None:
    from trainer.runs.train import RunRequest, run_seed

    recipe, folder = study.recipe_of(trial), study.run_folder(trial)
    run_seed(RunRequest(recipe, seed, folder, study.device, resume=True))
