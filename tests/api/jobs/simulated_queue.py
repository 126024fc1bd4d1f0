"""A queue with owners and workers in simulated time, and what it has promised after each step.

The queue and its database are real. The clock of the database is simulated and may be set, as may
that of the processes, which ids of jobs tell. `Elapsed` time is none of them: it only goes on.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import sqlalchemy as sa
from sqlalchemy import Engine

from api.jobs import queue, store
from api.jobs.failures import Failure
from api.jobs.queue import Progress
from api.jobs.store import Job, SubmitLimits, TooManyJobs
from api.storage import database, tables
from api.storage.database import write_transaction
from api.storage.tables import DELETING, EVENTS, JOBS, TURNS
from api.worker.job_messages import Beat, Stage
from api.worker.time_limits import TimeLimits, overdue
from difficulty_service.bodies.jobs import FINAL_STATES, JobError
from tests.api.stored_results import stored_result

OWNERS = ("ann", "ben", "cem", "dan")
WORKERS = ("one", "two", "three")
LEASES = {"one": 60.0, "two": 60.0, "three": 20.0}
MAX_QUEUED = 6
MAX_ATTEMPTS = 3
JOB_SECONDS = 200.0
LIMITS = TimeLimits(listing=1e9, image=1e9, stage=1e9, job=JOB_SECONDS)
READ = [column for column in JOBS.c if column.name not in ("request", "request_sha256", "result")]
ERROR = JobError(type="storage", detail="the storage does not answer")
START = 1.7e9
ROUNDING = 1e-3
"""Seconds: a double of this size is that of a time since 1970 within a microsecond."""


class Crashed(Exception):
    """A process is killed within a transaction."""


@dataclass
class Clock:
    """Elapsed seconds, and how far the clocks of database and processes are ahead of them."""

    elapsed: float = 0.0
    database: float = START
    processes: float = START

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Has databases and ids tell this time, and ids be the same in each run."""
        told = sa.bindparam("told", callable_=lambda: self.elapsed + self.database, type_=sa.Float)
        clock = sa.text("SELECT CAST(:told AS double precision)").bindparams(told)
        with (
            mock.patch.dict(database.CLOCKS, dict.fromkeys(database.CLOCKS, clock)),
            mock.patch.object(tables.time, "time_ns", self._nanoseconds),
            mock.patch.object(tables.secrets, "randbits", random.Random(0).getrandbits),  # noqa: S311
        ):
            yield

    def _nanoseconds(self) -> int:  # in which ids sort, and nothing else
        return int((self.elapsed + self.processes) * 1e9)


@dataclass
class Expected:
    """What a job must be.

    Attributes:
        since: Elapsed time at which what it waits for began: its lease, or its delay.
        length: Seconds of that.
        counted_from: The same, or when it began again, because a clock had been set back.
        is_counted: Whether no clock was set back since then.
        is_steady: Whether no clock was set at all.
        is_early: Whether a clock was set forward, by which a lease may end early; one set back
            never ends the lease of a worker that is alive.
        endings: How often it came into a final state.
    """

    id: str
    owner: str
    key: str | None
    since: float
    length: float = 0.0
    counted_from: float = 0.0
    is_counted: bool = True
    is_steady: bool = True
    is_early: bool = False
    state: str = "queued"
    attempt: int = 0
    max_attempts: int = MAX_ATTEMPTS
    cancel_requested: bool = False
    seconds: float = 0.0
    endings: int = 0

    def wait(self, state: str, elapsed: float, length: float) -> None:
        """Begins to wait in a state."""
        self.state = state
        self.since = self.counted_from = elapsed
        self.length = length
        self.is_counted = self.is_steady = True
        self.is_early = False

    def end(self, state: str) -> None:
        self.state = state
        self.endings += 1

    def may_be_over(self, elapsed: float) -> bool:
        """Whether what it waits for may be over by some clock."""
        any_time = self.is_early if self.state == "running" else not self.is_steady
        return any_time or elapsed >= self.since + self.length - ROUNDING

    def must_be_over(self, elapsed: float) -> bool:
        """Whether what it waits for is over by any clock: a clock set back makes it begin again."""
        if not self.length:
            return True
        return self.is_counted and elapsed > self.counted_from + self.length + ROUNDING

    @property
    def is_used_up(self) -> bool:
        """Whether it ends where its worker is silent."""
        return self.cancel_requested or self.attempt >= self.max_attempts


@dataclass
class Held:
    """A job as its worker knows it."""

    job: Job
    began: float  # elapsed time


@dataclass
class SimulatedQueue:
    """The queue of a database, which is emptied at the beginning, and who uses it."""

    engine: Engine
    clock: Clock = field(default_factory=Clock)
    jobs: dict[str, Expected] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)  # by worker
    turns: Counter[str] = field(default_factory=Counter)  # of each owner, at its last claim
    lost_jobs: list[Job] = field(default_factory=list)  # of workers that crashed, or were told

    def __post_init__(self) -> None:
        with write_transaction(self.engine) as connection:
            for table in (EVENTS, JOBS, TURNS):
                connection.execute(sa.delete(table))

    # Time.

    def go_on(self, seconds: float) -> None:
        self.clock.elapsed += seconds

    def set_clock(self, seconds: float) -> None:
        """Sets the clock of the database forward, or back."""
        self.clock.database += seconds
        for job in self.jobs.values():
            job.is_steady = False
            job.is_early |= seconds > 0
            if seconds < 0:
                job.is_counted = False

    # Owners.

    def submit(self, owner: str, key: str | None) -> None:
        known = [
            each
            for each in self.jobs.values()
            if key is not None and (each.owner, each.key) == (owner, key)
        ]
        waiting = sum((each.owner, each.state) == (owner, "queued") for each in self.jobs.values())
        limits = SubmitLimits(MAX_QUEUED, MAX_ATTEMPTS)
        try:
            job, is_new = store.submit(self.engine, owner, {}, key, limits)
        except TooManyJobs:
            assert not known
            assert waiting >= MAX_QUEUED
            return
        if known:
            assert (job.id, is_new) == (known[0].id, False)
            return
        assert is_new
        assert waiting < MAX_QUEUED
        self.jobs[job.id] = Expected(job.id, owner, key, self.clock.elapsed)

    def cancel(self, owner: str, job: Expected) -> None:
        answer = store.request_cancel(self.engine, owner, job.id)
        if owner != job.owner or job.state == DELETING:
            assert answer is None
            return
        assert answer is not None
        if job.state == "queued" or (
            job.state == "running"
            and answer.state == "cancelled"
            and job.may_be_over(self.clock.elapsed)
        ):
            job.cancel_requested = True
            job.end("cancelled")
        elif job.state == "running":
            job.cancel_requested = True

    def delete(self, owner: str, job: Expected) -> None:
        begun = store.begin_deletion(self.engine, owner, job.id)
        assert begun == (owner == job.owner and job.state in FINAL_STATES)
        if begun:
            self.require_one_ending(job)
            job.state, job.key = DELETING, None

    def end_deletions(self) -> None:
        begun = sorted(each.id for each in self.jobs.values() if each.state == DELETING)
        assert store.jobs_to_delete(self.engine) == begun
        for job_id in begun:
            store.end_deletion(self.engine, job_id)
            del self.jobs[job_id]

    # Workers.

    def claim(self, worker: str) -> bool:
        """Claims a job for an idle worker; whether there was one."""
        assert worker not in self.held
        for job in self.jobs.values():
            if not job.is_counted and job.state == "running":
                job.counted_from, job.is_counted = self.clock.elapsed, True
        silent = [each for each in self.jobs.values() if each.state == "running"]
        claimed = queue.claim(self.engine, worker, "cpu", LEASES[worker])
        self._end_silent(silent)
        elapsed = self.clock.elapsed
        job = None if claimed is None else self.jobs[claimed.id]
        if job is None or job.state == "queued":
            waiting = [each for each in silent if each.state == "running"]
            assert not [each for each in waiting if each.must_be_over(elapsed)]
        if claimed is None or job is None:
            assert not self._claimable()
            return False
        assert job.may_be_over(elapsed)
        if job.state == "queued":
            self._require_turn(job)
        else:
            assert job.state == "running"
            assert not job.is_used_up
        job.attempt += 1
        job.wait("running", elapsed, LEASES[worker])
        self.turns[job.owner] = max(self.turns.values(), default=0) + 1
        self.held[worker] = Held(claimed, elapsed)
        assert (claimed.owner, claimed.attempt) == (job.owner, job.attempt)
        assert abs(claimed.seconds - job.seconds) < ROUNDING
        return True

    def _end_silent(self, silent: Collection[Expected]) -> None:
        """Follows the end of jobs whose worker is silent and that cannot be tried again."""
        states = self.states()
        for job in silent:
            if job.is_used_up and states[job.id] in FINAL_STATES:
                assert job.may_be_over(self.clock.elapsed)
                job.end("cancelled" if job.cancel_requested else "failed")

    def _claimable(self) -> list[Expected]:
        """Queued jobs that no delay can hold back."""
        jobs = self.jobs.values()
        return [
            each
            for each in jobs
            if each.state == "queued" and each.must_be_over(self.clock.elapsed)
        ]

    def _require_turn(self, job: Expected) -> None:
        """The turn was that of the owner, and the job the one of the owner that waited longest."""
        running = Counter(each.owner for each in self.jobs.values() if each.state == "running")
        turn = (running[job.owner], self.turns[job.owner])
        for other in self._claimable():
            assert (running[other.owner], self.turns[other.owner]) >= turn
            if other.owner == job.owner and job.is_steady and other.is_steady:
                waits_since = other.since + other.length
                assert waits_since >= job.since + job.length - ROUNDING

    def _is_lost(self, job: Job) -> bool:
        """Whether a job is no longer that of the worker that claimed it."""
        known = self.jobs.get(job.id)
        return known is None or (known.state, known.attempt) != ("running", job.attempt)

    def beat(self, worker: str) -> None:
        """Sends a heartbeat, and does what a worker does with the answer."""
        held = self.held[worker]
        worked = held.job.seconds + self.clock.elapsed - held.began
        too_long = overdue(Beat(Stage.EXTRACTING, 0.0, ()), 0.0, LIMITS, worked)
        if too_long is not None:
            self.fail(worker, None, too_long)
            return
        lost = self._is_lost(held.job)
        answer = queue.heartbeat(self.engine, held.job, LEASES[worker], Progress(1, 2), worked)
        if lost:
            assert answer == "lost"
            self._leave(worker)
            return
        job = self.jobs[held.job.id]
        assert answer == ("cancel" if job.cancel_requested else "ok")
        job.seconds = worked
        job.wait("running", self.clock.elapsed, LEASES[worker])
        if job.cancel_requested:
            assert queue.cancelled(self.engine, held.job)
            job.end("cancelled")
            self._leave(worker)

    def succeed(self, worker: str, *, confirmed: bool = True) -> None:
        """Ends a job; where that was not confirmed, once more."""
        held, lost = self.held[worker], self._is_lost(self.held[worker].job)
        result = stored_result(f"{worker} {held.job.attempt}")
        assert queue.succeed(self.engine, held.job, result) == (not lost)
        if not confirmed:
            assert queue.succeed(self.engine, held.job, result) == (not lost)
        if not lost:
            self.jobs[held.job.id].end("succeeded")
        self._leave(worker)

    def fail(self, worker: str, retry_in: float | None, failure: Failure | None = None) -> None:
        held, lost = self.held[worker], self._is_lost(self.held[worker].job)
        error = ERROR if failure is None else failure.error
        assert queue.fail(self.engine, held.job, error, retry_in=retry_in) == (not lost)
        if not lost:
            job = self.jobs[held.job.id]
            if job.cancel_requested:
                job.end("cancelled")
            elif retry_in is None or job.attempt >= job.max_attempts:
                job.end("failed")
            else:
                job.wait("queued", self.clock.elapsed, retry_in)
        self._leave(worker)

    def hand_back(self, worker: str) -> None:
        held, lost = self.held[worker], self._is_lost(self.held[worker].job)
        assert queue.hand_back(self.engine, held.job) == (not lost)
        if not lost:
            job = self.jobs[held.job.id]
            if job.cancel_requested:
                job.end("cancelled")
            else:
                job.max_attempts += 1
                job.wait("queued", self.clock.elapsed, 0.0)
        self._leave(worker)

    def crash(self, worker: str) -> None:
        """Kills a worker; another one has its name from now on."""
        self._leave(worker)

    def crash_within(self, worker: str) -> None:
        """Kills a worker in the middle of a transaction, which leaves nothing behind."""
        with mock.patch.object(queue, "add_event", side_effect=Crashed), suppress(Crashed):
            queue.heartbeat(self.engine, self.held[worker].job, LEASES[worker], Progress(), 1e6)
        self.crash(worker)

    def return_from_the_dead(self) -> None:
        """Has a worker that was thought dead go on where it was."""
        job = self.lost_jobs.pop()
        if not self._is_lost(job):
            return
        before = self.rows()
        assert queue.heartbeat(self.engine, job, 60.0, Progress(), 1e6) == "lost"
        assert not queue.succeed(self.engine, job, stored_result("from the dead"))
        assert not queue.fail(self.engine, job, JobError(type="x", detail="dead"), retry_in=0.0)
        assert self.rows() == before

    def _leave(self, worker: str) -> None:
        self.lost_jobs.append(self.held.pop(worker).job)

    # What must hold.

    def rows(self) -> dict[str, Any]:
        """The jobs in the database, by their ids."""
        with self.engine.connect() as connection:
            return {row.id: row for row in connection.execute(sa.select(*READ))}

    def states(self) -> dict[str, str]:
        return {job_id: row.state for job_id, row in self.rows().items()}

    def check(self) -> None:
        """No job is gone, doubled, or other than it must be."""
        rows = self.rows()
        assert rows.keys() == self.jobs.keys()
        for job in self.jobs.values():
            row = rows[job.id]
            found = (row.owner, row.state, row.attempt, row.max_attempts)
            assert found == (job.owner, job.state, job.attempt, job.max_attempts)
            assert bool(row.cancel_requested) == job.cancel_requested
            assert abs(row.seconds - job.seconds) < ROUNDING
            assert job.seconds <= JOB_SECONDS + ROUNDING
        holders = Counter(held.job.id for held in self.held.values() if not self._is_lost(held.job))
        assert all(number == 1 for number in holders.values())

    def require_one_ending(self, job: Expected) -> None:
        """The events of a job tell of its end once, and of as many claims as it had."""
        events = store.events_after(self.engine, job.id, 0, 10_000)
        states = [event.data["state"] for event in events if event.kind == "state"]
        assert [state for state in states if state in FINAL_STATES] == [job.state]
        assert job.endings == 1
        assert states[-1] == job.state
        attempts = [event.data["attempt"] for event in events if event.data.get("device")]
        assert attempts == list(range(1, job.attempt + 1))

    def finish(self) -> None:
        """All workers go on: every job comes to its end."""
        for worker in list(self.held):
            self.beat(worker)
        for worker in list(self.held):
            self.succeed(worker)
        for _ in range(3):  # the longest wait, thrice: one may begin again after a clock was set
            while self.claim(WORKERS[0]):
                self.succeed(WORKERS[0])
            self.go_on(max([*LEASES.values(), *(job.length for job in self.jobs.values())]) + 1)
        self.check()
        for job in self.jobs.values():
            if job.state != DELETING:
                assert job.state in FINAL_STATES
                self.require_one_ending(job)
