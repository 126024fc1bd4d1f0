"""The queue keeps what it promises in any order of claims, crashes and clocks.

DIFFICULTY_QUEUE_STEPS is the number of steps on each database, a million in `make campaign` and
otherwise some hundreds.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine

from tests.api.jobs.simulated_queue import OWNERS, WORKERS, Clock, Expected, SimulatedQueue

STEPS = int(os.environ.get("DIFFICULTY_QUEUE_STEPS", "400"))
STEPS_PER_RUN = 50

owners = st.sampled_from(OWNERS)
workers = st.sampled_from(WORKERS)
numbers = st.integers(0, 30)


class QueueMachine(RuleBasedStateMachine):
    """What owners, workers and clocks may do, in any order."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.clock = Clock()
        self.installed = self.clock.installed()
        self.installed.__enter__()
        self.queue = SimulatedQueue(engine, self.clock)

    def teardown(self) -> None:
        try:
            self.queue.finish()
        finally:
            self.installed.__exit__(None, None, None)

    def job(self, number: int) -> Expected:
        jobs = list(self.queue.jobs.values())
        return jobs[number % len(jobs)]

    def busy(self, number: int) -> str:
        held = sorted(self.queue.held)
        return held[number % len(held)]

    def has_jobs(self) -> bool:
        return bool(self.queue.jobs)

    def is_held(self) -> bool:
        return bool(self.queue.held)

    @rule(seconds=st.sampled_from([0.01, 5.0, 15.0, 35.0, 61.0, 300.0]))
    def go_on(self, seconds: float) -> None:
        self.queue.go_on(seconds)

    @rule(seconds=st.sampled_from([-86400.0, -3600.0, -40.0, -0.5, 0.5, 40.0, 3600.0]))
    def set_clock_of_database(self, seconds: float) -> None:
        self.queue.set_clock(seconds)

    @rule(seconds=st.sampled_from([-3600.0, -0.5, 40.0]))
    def set_clock_of_processes(self, seconds: float) -> None:
        self.clock.processes += seconds

    @rule(owner=owners, key=st.sampled_from([None, None, "a", "b"]))
    def submit(self, owner: str, key: str | None) -> None:
        self.queue.submit(owner, key)

    @rule(owner=owners)
    def submit_another(self, owner: str) -> None:
        self.queue.submit(owner, None)

    @rule(worker=workers)
    def claim(self, worker: str) -> None:
        if worker not in self.queue.held:
            self.queue.claim(worker)

    @rule(worker=workers)
    def claim_or_beat(self, worker: str) -> None:
        if worker in self.queue.held:
            self.queue.beat(worker)
        else:
            self.queue.claim(worker)

    @precondition(is_held)
    @rule(number=numbers)
    def beat(self, number: int) -> None:
        self.queue.beat(self.busy(number))

    @precondition(is_held)
    @rule(number=numbers, confirmed=st.booleans())
    def succeed(self, number: int, confirmed: bool) -> None:  # noqa: FBT001
        self.queue.succeed(self.busy(number), confirmed=confirmed)

    @precondition(is_held)
    @rule(number=numbers, retry_in=st.sampled_from([None, 0.0, 5.0, 100.0]))
    def fail(self, number: int, retry_in: float | None) -> None:
        self.queue.fail(self.busy(number), retry_in)

    @precondition(is_held)
    @rule(number=numbers)
    def hand_back(self, number: int) -> None:
        self.queue.hand_back(self.busy(number))

    @precondition(is_held)
    @rule(number=numbers)
    def crash(self, number: int) -> None:
        self.queue.crash(self.busy(number))

    @precondition(is_held)
    @rule(number=numbers)
    def crash_within_a_transaction(self, number: int) -> None:
        self.queue.crash_within(self.busy(number))

    @precondition(lambda self: self.queue.lost_jobs)
    @rule()
    def return_from_the_dead(self) -> None:
        self.queue.return_from_the_dead()

    @precondition(has_jobs)
    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        job = self.job(number)
        self.queue.cancel(job.owner, job)

    @precondition(has_jobs)
    @rule(number=numbers, owner=owners)
    def cancel_of_anybody(self, number: int, owner: str) -> None:
        self.queue.cancel(owner, self.job(number))

    @precondition(has_jobs)
    @rule(number=numbers, owner=owners)
    def delete(self, number: int, owner: str) -> None:
        self.queue.delete(owner, self.job(number))

    @rule()
    def end_deletions(self) -> None:
        self.queue.end_deletions()

    @invariant()
    def holds(self) -> None:
        self.queue.check()


def simulate(engine: Engine, steps: int) -> None:
    """Simulates so many steps, in runs that begin with an empty queue."""
    chosen = settings(
        max_examples=max(1, steps // STEPS_PER_RUN),
        stateful_step_count=STEPS_PER_RUN,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(lambda: QueueMachine(engine), settings=chosen)


@pytest.mark.slow
def test_no_order_of_events_loses_doubles_or_holds_up_a_job(engine: Engine) -> None:
    simulate(engine, STEPS)
