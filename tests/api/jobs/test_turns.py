"""Owners take turns in the queue, on SQLite and PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.dialects import postgresql, sqlite

from api.jobs import queue as claims
from api.jobs.queue import CLAIM_LOCK, claim, claim_alone, jobs_in_turn, succeed
from api.jobs.store import Job, SubmitLimits, begin_deletion, end_deletion, submit
from api.storage.database import connect, write_transaction
from tests.api.jobs.jobs_queue import Queue
from tests.api.stored_results import stored_result

LEASE = 3600.0
OTHERS = [f"key{number}" for number in range(9)]
MANY = 20_000


def submit_for_ten_keys(queue: Queue) -> None:
    """A hundred jobs of one key, then one of each of nine others."""
    for owner in ["busy"] * 100 + OTHERS:
        queue.submit(owner)


def run_next(queue: Queue) -> str:
    """Runs the next job to its end; returns its owner."""
    job = queue.claim()
    assert succeed(queue.engine, job, stored_result())
    return job.owner


def test_one_worker_runs_a_job_of_each_of_ten_keys_first(queue: Queue) -> None:
    submit_for_ten_keys(queue)

    owners = [run_next(queue) for _ in range(12)]

    assert owners == ["busy", *OTHERS, "busy", "busy"]


@pytest.mark.slow
def test_ten_workers_that_claim_at_the_same_moment_run_a_job_of_each_of_ten_keys(
    engine: Engine, queue: Queue
) -> None:
    submit_for_ten_keys(queue)
    barrier = Barrier(10)
    url = engine.url.render_as_string(hide_password=False)

    def take(name: str) -> Job | None:
        own = connect(url)  # as processes have, each its own connections
        barrier.wait()
        job = claim(own, name, "cpu", LEASE)
        own.dispose()
        return job

    with ThreadPoolExecutor(10) as pool:
        owners = [job.owner for job in pool.map(take, "abcdefghij") if job is not None]

    assert sorted(owners) == ["busy", *OTHERS]


def test_a_key_with_fewer_running_jobs_comes_first_although_it_had_the_last_turn(
    queue: Queue,
) -> None:
    for owner in ("one", "one", "other", "other"):
        queue.submit(owner)
    assert queue.claim().owner == "one"  # and goes on running

    assert run_next(queue) == "other"
    assert run_next(queue) == "other"
    assert run_next(queue) == "one"


def test_a_key_gets_no_turn_by_deleting_what_has_finished(engine: Engine, queue: Queue) -> None:
    for owner in ("one", "one", "other"):
        queue.submit(owner)
    done = queue.claim()
    assert succeed(engine, done, stored_result())
    assert begin_deletion(engine, "one", done.id)
    end_deletion(engine, done.id)

    assert run_next(queue) == "other"


def test_a_key_that_had_no_turn_yet_comes_before_those_that_had_one(queue: Queue) -> None:
    for owner in ("one", "one", "two", "two"):
        queue.submit(owner)
    assert [run_next(queue), run_next(queue)] == ["one", "two"]
    queue.submit("new")

    assert [run_next(queue) for _ in range(3)] == ["new", "one", "two"]


def test_the_jobs_of_one_key_run_in_the_order_of_their_waiting(queue: Queue) -> None:
    jobs = [queue.submit(owner) for owner in ("one", "other", "one", "other")]

    order = [queue.claim().id for _ in jobs]

    assert order == [job.id for job in jobs]


def plan(connection: Connection) -> str:
    """How the database finds the next job."""
    kind = connection.dialect.name
    dialect = {"sqlite": sqlite, "postgresql": postgresql}[kind].dialect()
    query = jobs_in_turn(1e9).compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}[kind]
    return "\n".join(
        str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {query}".replace("%", "%%"))
    )


def test_finished_jobs_are_not_read_to_find_the_next_one(engine: Engine, queue: Queue) -> None:
    finished = text(
        "WITH RECURSIVE numbers(n) AS"
        " (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)"
        " INSERT INTO jobs (id, owner, state, request, request_sha256, created_at, run_after,"
        " attempt, max_attempts, hold_seconds, cancel_requested, done, bad, seconds)"
        " SELECT 'finished' || n, 'owner', 'succeeded', '{}', '', n, n, 1, 1, 0, 0, 0, 0, 0"
        " FROM numbers"
    )
    with write_transaction(engine) as connection:
        connection.execute(finished, {"many": MANY})
        if connection.dialect.name == "postgresql":  # which does so by itself, unlike SQLite
            connection.execute(text("ANALYZE"))
    submit_for_ten_keys(queue)

    with engine.connect() as connection:
        steps = plan(connection)

    assert "ix_jobs_state_" in steps
    assert "Seq Scan on jobs" not in steps
    assert "SCAN jobs" not in steps


def test_a_worker_that_freezes_while_it_claims_holds_up_the_others_for_seconds(
    postgresql_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "FROZEN_AFTER", "100ms")
    job, _ = submit(postgresql_engine, "owner", {}, None, SubmitLimits(1, 1))
    frozen = postgresql_engine.connect()
    claim_alone(frozen)
    assert CLAIM_LOCK in frozen.execute(text("SELECT objid FROM pg_locks")).scalars().all()

    claimed = claim(postgresql_engine, "worker", "cpu", LEASE)
    frozen.invalidate()

    assert claimed is not None
    assert claimed.id == job.id
