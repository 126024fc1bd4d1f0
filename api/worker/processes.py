"""Worker processes that a server starts, starts again when they die, and ends with itself."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess

import structlog

from api.logs import set_up_logs
from api.parent_process import call_after_parent
from api.settings import Settings
from difficulty_service.process_setup import keep_freed_memory

FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0
"""Seconds before a worker that died is started again; doubled each time it dies young."""

YOUNG = 60.0  # seconds; a worker that lives longer has started well
MARGIN = 15.0  # seconds beyond the grace time, after which a worker is killed


def run_child(settings: Settings, place: int) -> None:
    """What the process of a worker does: works until it is told to stop, or its server is gone."""
    from api.worker.worker import run_worker

    # Ctrl-C in a terminal is for the server, which then asks each worker once; twice would be
    # an order to drop everything.
    os.setpgrp()
    set_up_logs(settings)
    keep_freed_memory()
    # A server that was killed could not say so. As any other SIGTERM, this hands back the job.
    call_after_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    run_worker(settings.model_copy(update={"device": device_of(settings.device, place)}))


def device_of(device: str, place: int) -> str:
    """Spreads workers over the GPUs there are, unless one GPU is named."""
    if place == 0 or device not in ("auto", "cuda"):
        return device
    import torch

    gpus = torch.cuda.device_count()
    return f"cuda:{place % gpus}" if gpus > 1 else device


@contextmanager
def running_workers(settings: Settings, number: int) -> Iterator[None]:
    """So many workers run inside; at the end they finish their jobs or hand them back."""
    stopping = threading.Event()
    keepers = [_Keeper(settings, place, stopping) for place in range(number)]
    threads = [threading.Thread(target=each.keep, name=f"worker-{each.place}") for each in keepers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


@dataclass
class _Keeper:
    """Keeps one worker running."""

    settings: Settings
    place: int
    stopping: threading.Event
    delay: float = field(default=FIRST_DELAY, init=False)

    def keep(self) -> None:
        while not self.stopping.is_set():
            process = self._start()
            lived_long = self._wait(process)
            if self.stopping.is_set():
                self._end(process)
                return
            structlog.get_logger().warning(
                "worker-died", pid=process.pid, exit_code=process.exitcode
            )
            self.delay = FIRST_DELAY if lived_long else min(2 * self.delay, LONGEST_DELAY)
            self.stopping.wait(self.delay)

    def _start(self) -> BaseProcess:
        # Never forked: threads of this process may hold locks that the copy would wait for.
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=run_child, args=(self.settings, self.place))
        process.start()
        structlog.get_logger().info("worker-process-started", pid=process.pid)
        return process

    def _wait(self, process: BaseProcess) -> bool:
        """Waits until the process dies or is no longer wanted; whether it lived long."""
        waited = 0.0
        while process.is_alive() and not self.stopping.is_set():
            process.join(0.2)
            waited += 0.2
        return waited >= YOUNG

    def _end(self, process: BaseProcess) -> None:
        if process.is_alive():
            process.terminate()
            process.join(self.settings.grace + MARGIN)
        if process.is_alive():
            structlog.get_logger().warning("worker-killed", pid=process.pid)
            process.kill()
        process.join()
