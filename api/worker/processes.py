"""Worker processes beside a server: started, restarted when they die, and ended with it."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess

import structlog

from api.logs import set_up_logging
from api.settings import Settings
from difficulty_service.base.apart import signal_after_parent, start_process
from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.process_setup import keep_freed_memory

FIRST_DELAY, MAX_DELAY = 1.0, 60.0
"""Seconds before a worker that died is restarted; doubled each time it dies young."""

YOUNG = 60.0  # seconds; a worker that lives longer started properly
MARGIN = 15.0  # seconds beyond the grace period, after which a worker is killed


def run_child(settings: Settings, index: int) -> None:
    """Runs a worker in this process until it is told to stop, or its server has ended."""
    from api.worker.worker import run_worker

    # Ctrl-C in a terminal goes to the server, which signals each worker once; a second signal would
    # make the worker exit without handing back its job.
    os.setpgrp()
    set_up_logging(settings)
    keep_freed_memory()
    # A server that was killed sends no signal. As any other SIGTERM, this one hands back the job.
    signal_after_parent(signal.SIGTERM)
    try:
        run_worker(settings.model_copy(update={"device": device_of(settings.device, index)}))
    except DifficultyError as error:
        structlog.get_logger().error("worker-cannot-run", reason=str(error))
        sys.exit(1)


def device_of(device: str, index: int) -> str:
    """Device of the worker of an index: workers share the GPUs evenly unless one is named."""
    if index == 0 or device not in ("auto", "cuda"):
        return device
    import torch

    gpus = torch.cuda.device_count()
    return f"cuda:{index % gpus}" if gpus > 1 else device


@contextmanager
def running_workers(settings: Settings, number: int) -> Iterator[None]:
    """Runs workers within the context; at its end they finish their jobs or hand them back."""
    stopping = threading.Event()
    supervisors = [_Supervisor(settings, index, stopping) for index in range(number)]
    threads = [
        threading.Thread(target=each.run, name=f"worker-{each.index}") for each in supervisors
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


@dataclass
class _Supervisor:
    """Restarts one worker whenever it dies."""

    settings: Settings
    index: int
    stopping: threading.Event
    delay: float = field(default=FIRST_DELAY, init=False)

    def run(self) -> None:
        while not self.stopping.is_set():
            process = self._start()
            lived_long = self._wait(process)
            if self.stopping.is_set():
                self._end(process)
                return
            structlog.get_logger().warning(
                "worker-died", pid=process.pid, exit_code=process.exitcode
            )
            self.delay = FIRST_DELAY if lived_long else min(2 * self.delay, MAX_DELAY)
            self.stopping.wait(self.delay)

    def _start(self) -> BaseProcess:
        process = start_process(run_child, self.settings, self.index)
        structlog.get_logger().info("worker-process-started", pid=process.pid)
        return process

    def _wait(self, process: BaseProcess) -> bool:
        """Waits until the process dies or is to stop; whether it lived long."""
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
