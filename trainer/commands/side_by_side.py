"""Several seeds trained at once, each in a process of its own."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from difficulty_service.base import apart
from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.threads import num_workers
from difficulty_service.cli.console import err
from trainer.commands import STOPPED
from trainer.config import Recipe
from trainer.console import train_seed
from trainer.runs.train import stop_on_signals

SIGNAL_SECONDS = 0.2
"""Time after which a signal is noticed while all processes train."""


@dataclass(frozen=True)
class SeedToTrain:
    """One seed of a run.

    Attributes:
        label: What its lines of output begin with.
    """

    label: str
    recipe: Recipe
    seed: int
    folder: Path
    resume: bool


def train_side_by_side(seeds: Sequence[SeedToTrain], jobs: int, device: str) -> list[int]:
    """Trains seeds in so many processes, in their order, and returns the exit code of each.

    0 is that of a finished seed, STOPPED that of one that a signal stopped or kept from beginning,
    and any other that of an error, which is printed. On a processor each process has its share of
    the cores; with the device `auto` and several GPUs it has one of them.
    """
    codes = [STOPPED] * len(seeds)
    waiting = list(enumerate(seeds))
    running: dict[int, tuple[int, BaseProcess]] = {}
    threads = max(1, num_workers() // jobs)
    devices = devices_of(jobs, device)
    with stop_on_signals() as received_signal:
        told = False
        while waiting or running:
            if received_signal() and not told:
                told = True
                waiting.clear()
                for _, process in running.values():
                    os.kill(process.pid or 0, signal.SIGTERM)
            for place in range(jobs):
                if waiting and place not in running:
                    number, seed = waiting.pop(0)
                    with apart.without_main():
                        process = apart.start_process(_train, seed, devices[place], threads)
                    running[place] = number, process
            wait([process.sentinel for _, process in running.values()], SIGNAL_SECONDS)
            for place, (number, process) in list(running.items()):
                if process.exitcode is not None:
                    codes[number] = process.exitcode
                    del running[place]
    return codes


def devices_of(jobs: int, device: str) -> list[str]:
    """The device of each process."""
    gpus = torch.cuda.device_count() if device == "auto" else 0
    if gpus < 2:  # noqa: PLR2004 - one is chosen by itself
        return [device] * jobs
    return [f"cuda:{place % gpus}" for place in range(jobs)]


def _train(seed: SeedToTrain, device: str, threads: int) -> None:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    # A process that is killed cannot tell this one to stop.
    apart.call_after_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        finished = train_seed(
            seed.recipe, seed.seed, seed.folder, device, resume=seed.resume, label=seed.label
        )
    except DifficultyError as error:
        err.print(f"error: {seed.label}: {' '.join(str(error).split())}", markup=False)
        sys.exit(1)
    sys.exit(0 if finished else STOPPED)
