"""The registry lists the workers that are alive."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from api.jobs.queue import live_workers, record_heartbeat, remove_worker
from api.storage.database import write_transaction
from api.storage.tables import WORKERS


def test_a_worker_that_beats_is_there_with_what_it_does(engine: Engine) -> None:
    record_heartbeat(engine, "one", "cuda:0", "job", 7)

    (worker,) = live_workers(engine, within=3600)

    assert (worker.id, worker.device, worker.job, worker.images) == ("one", "cuda:0", "job", 7)


def test_a_later_beat_replaces_all_but_the_start(engine: Engine) -> None:
    record_heartbeat(engine, "one", "cpu", "job", 7)
    (before,) = live_workers(engine, within=3600)

    record_heartbeat(engine, "one", "cpu", None, 9)

    (after,) = live_workers(engine, within=3600)
    assert (after.job, after.images, after.started_at) == (None, 9, before.started_at)
    assert after.seen_at >= before.seen_at


def test_a_worker_without_a_recent_heartbeat_is_not_alive(engine: Engine) -> None:
    record_heartbeat(engine, "silent", "cpu", None, 0)
    with write_transaction(engine) as connection:
        connection.execute(WORKERS.update().values(seen_at=WORKERS.c.seen_at - 7200))
    record_heartbeat(engine, "loud", "cpu", None, 0)

    assert [worker.id for worker in live_workers(engine, within=3600)] == ["loud"]


def test_a_heartbeat_of_before_the_clock_was_set_back_is_no_recent_one(
    engine: Engine, set_clock: Callable[[float], None]
) -> None:
    record_heartbeat(engine, "silent", "cpu", None, 0)
    set_clock(-3600.0)
    record_heartbeat(engine, "loud", "cpu", None, 0)

    assert [worker.id for worker in live_workers(engine, within=60)] == ["loud"]


def test_workers_are_listed_by_their_ids(engine: Engine) -> None:
    for worker in ("two", "one", "three"):
        record_heartbeat(engine, worker, "cpu", None, 0)

    assert [worker.id for worker in live_workers(engine, within=3600)] == ["one", "three", "two"]


def test_a_worker_that_stops_is_forgotten(engine: Engine) -> None:
    record_heartbeat(engine, "one", "cpu", None, 0)
    record_heartbeat(engine, "two", "cpu", None, 0)

    remove_worker(engine, "one")

    assert [worker.id for worker in live_workers(engine, within=3600)] == ["two"]


def test_first_beats_at_the_same_moment_make_one_worker(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda images: record_heartbeat(engine, "one", "cpu", None, images), range(16))
        )

    assert len(live_workers(engine, within=3600)) == 1
