"""The faults of a campaign: what is killed, paused, filled or restarted, and how often."""

import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.service import Service, send
from tests.faults.submitted_jobs import POLL_SECONDS, SubmittedJobs

LEASE = 2.0  # seconds after which another worker takes the job of one that is silent
PAUSES = (1.3 * LEASE, 2.5 * LEASE)
SERVER_PAUSE = 2.0  # seconds, longer than clients wait for an answer
OUTAGE = 1.0  # seconds that a disk stays full
MAX_DELAY = 0.5  # seconds between a claim and a fault
WAITING = 6  # jobs that are kept unfinished


@dataclass
class Target:
    """What is attacked.

    Attributes:
        service: Server and workers.
        submitted: Jobs of a client.
        disk: Folder of all data.
        restart: Restarts the database at once; None if there is no server of it.
        chance: Source of chance.
        strikes: Threads of faults that go on.
    """

    service: Service
    submitted: SubmittedJobs
    disk: Path
    restart: Callable[[], None] | None
    chance: random.Random
    strikes: list[threading.Thread] = field(default_factory=list)

    def busy(self) -> int:
        """Waits for a worker with a job, and a moment longer; gives its process id."""
        while not (busy := self._busy()):
            self.submitted.keep_waiting(WAITING)
            time.sleep(POLL_SECONDS)
        time.sleep(self.chance.uniform(0, MAX_DELAY))
        return self.chance.choice(sorted(self._busy() or busy))

    def pause(self, *pids: int) -> None:
        """Pauses processes for longer than a lease."""
        self.submitted.paused += [job for pid, job in self._busy().items() if pid in pids]
        self.service.pause(self.chance.uniform(*PAUSES), *pids)

    def settle(self) -> None:
        """Waits until no fault goes on."""
        while self.strikes:
            self.strikes.pop().join()
        self.service.wait_for_pauses()

    def _busy(self) -> dict[int, tuple[str, int]]:
        """Id and attempt of its job, by the process id of each worker that is not paused."""
        # The id of a worker ends with its process id and a random part.
        running = {int(name.split("-")[-2]): job for name, job in self.submitted.running().items()}
        return {pid: running[pid] for pid in self.service.workers if pid in running}


def kill_worker(target: Target) -> None:
    target.service.replace_worker(target.busy())


def kill_job_process(target: Target) -> None:
    send(target.service.job_process(target.busy()), signal.SIGKILL)


def kill_server(target: Target) -> None:
    """Kills the server while jobs are being submitted."""
    target.settle()
    strike = threading.Timer(target.chance.uniform(0, 0.2), target.service.replace_server)
    target.strikes.append(strike)
    strike.start()


def pause_worker(target: Target) -> None:
    """Pauses a worker until it has lost its job, while the process of its job goes on."""
    target.pause(target.busy())


def pause_worker_and_job(target: Target) -> None:
    """Pauses both, as with the whole machine."""
    worker = target.busy()
    target.pause(worker, target.service.job_process(worker))


def pause_job_process(target: Target) -> None:
    target.pause(target.service.job_process(target.busy()))


def pause_server(target: Target) -> None:
    target.settle()
    target.service.pause(SERVER_PAUSE, target.service.server)


def fill_disk(target: Target) -> None:
    """Fills the disk for a while."""
    ballast = target.disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    time.sleep(OUTAGE)
    ballast.unlink()


def restart_database(target: Target) -> None:
    assert target.restart is not None
    target.restart()


Fault = Callable[[Target], None]

KILLS: Mapping[Fault, int] = {kill_worker: 10, kill_job_process: 8, kill_server: 2}
OTHERS: Mapping[Fault, int] = {
    pause_worker: 2,
    pause_worker_and_job: 1,
    pause_job_process: 1,
    pause_server: 1,
    fill_disk: 1,
    restart_database: 1,
}

KILLS_PER_ROUND = sum(KILLS.values())


def planned_faults(target: Target, kills: int) -> list[Fault]:
    """The faults of one round with some of its kills, of each kind at least one, in any order.

    Without the disk where everything else here is on it, too, and a database without a server.
    """
    times = {fault: max(1, number * kills // KILLS_PER_ROUND) for fault, number in KILLS.items()}
    possible = {
        fill_disk: target.disk.is_mount(),
        restart_database: target.restart is not None,
    }
    faults = [
        fault
        for fault, number in {**times, **OTHERS}.items()
        for _ in range(number if possible.get(fault, True) else 0)
    ]
    target.chance.shuffle(faults)
    return faults
