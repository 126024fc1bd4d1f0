"""Several seeds trained at once, each in a process of its own, here or on a cluster."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from difficulty_service.base import apart
from difficulty_service.base.threads import num_workers, share_cores
from trainer.commands import STOPPED, SeveralSeeds
from trainer.commands.places import Places, Running, SeedToTrain, train_one
from trainer.runs.train import stop_on_signals
from trainer.training.accelerator import require_named_gpus

SIGNAL_SECONDS = 0.2
"""Time after which a signal is noticed while all processes train."""


def train_side_by_side(
    seeds: Sequence[SeedToTrain], several: SeveralSeeds, folder: Path
) -> list[int]:
    """Trains several seeds at once, in their order, and returns the exit code of each.

    0 is that of a finished seed, STOPPED that of one that a signal stopped or kept from beginning,
    and any other that of an error, which is printed.

    Args:
        folder: Folder that holds the runs; nodes of a cluster must share it.
    """
    if several.engine == "local":
        return _train_at(ProcessPlaces(several.jobs or 1, several.device), seeds)
    from trainer.commands.on_ray import places_on_ray

    with places_on_ray(several, len(seeds), folder) as places:
        return _train_at(places, seeds)


def _train_at(places: Places, seeds: Sequence[SeedToTrain]) -> list[int]:
    codes = [STOPPED] * len(seeds)
    waiting = list(enumerate(seeds))
    running: dict[int, tuple[int, Running]] = {}
    with stop_on_signals() as received_signal:
        told = False
        while waiting or running:
            if received_signal() and not told:
                told = True
                waiting.clear()
                for _, started in running.values():
                    started.stop()
            for place in range(places.count):
                if waiting and place not in running:
                    number, seed = waiting.pop(0)
                    running[place] = number, places.start(seed, place)
            places.wait([started for _, started in running.values()], SIGNAL_SECONDS)
            for place, (number, started) in list(running.items()):
                if (code := started.poll()) is not None:
                    codes[number] = code
                    del running[place]
    return codes


@dataclass(frozen=True)
class RunningProcess:
    """A seed that a process of this machine trains; see `Running`."""

    process: BaseProcess

    def poll(self) -> int | None:
        """The exit code of the process."""
        return self.process.exitcode

    def stop(self) -> None:
        """Sends the process the signal to save and end."""
        os.kill(self.process.pid or 0, signal.SIGTERM)


@dataclass(frozen=True)
class ProcessPlaces:
    """Processes of this machine; see `Places`.

    On a processor each has its share of the cores; with the device `auto` and several GPUs it has
    one of them.
    """

    count: int
    device: str

    def start(self, seed: SeedToTrain, place: int) -> RunningProcess:
        """Starts a process."""
        threads = max(1, num_workers() // self.count)
        device = devices_of(self.count, self.device)[place]
        with apart.without_main():
            process = apart.start_process(_train, seed, device, threads, self.count)
        return RunningProcess(process)

    def wait(self, running: Sequence[Running], seconds: float) -> None:
        """Returns when a process has ended, or after some seconds."""
        processes = [each.process for each in running if isinstance(each, RunningProcess)]
        wait([process.sentinel for process in processes], seconds)


def devices_of(jobs: int, device: str) -> list[str]:
    """The device of each process.

    Raises:
        TrainingError: CUDA does not find all GPUs that are named for them.
    """
    if device == "auto":
        require_named_gpus()
    gpus = torch.cuda.device_count() if device == "auto" else 0
    if gpus < 2:  # noqa: PLR2004 - one is chosen by itself
        return [device] * jobs
    return [f"cuda:{place % gpus}" for place in range(jobs)]


def _train(seed: SeedToTrain, device: str, threads: int, count: int) -> None:
    share_cores(count)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    # A process that is killed cannot tell this one to stop.
    apart.signal_after_parent(signal.SIGTERM)
    train_one(seed, device)
