"""Which workers are there."""

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from api.storage.database import write_transaction
from api.storage.tables import WORKERS
from api.storage.worker_registry import alive, beat, forget


def test_a_worker_that_beats_is_there_with_what_it_does(engine: Engine) -> None:
    beat(engine, "one", "cuda:0", "job", 7)

    (worker,) = alive(engine, within=3600)

    assert (worker.id, worker.device, worker.job, worker.images) == ("one", "cuda:0", "job", 7)


def test_a_later_beat_replaces_all_but_the_start(engine: Engine) -> None:
    beat(engine, "one", "cpu", "job", 7)
    (before,) = alive(engine, within=3600)

    beat(engine, "one", "cpu", None, 9)

    (after,) = alive(engine, within=3600)
    assert (after.job, after.images, after.started_at) == (None, 9, before.started_at)
    assert after.seen_at >= before.seen_at


def test_a_worker_that_fell_silent_is_not_there(engine: Engine) -> None:
    beat(engine, "silent", "cpu", None, 0)
    with write_transaction(engine) as connection:
        connection.execute(WORKERS.update().values(seen_at=WORKERS.c.seen_at - 7200))
    beat(engine, "loud", "cpu", None, 0)

    assert [worker.id for worker in alive(engine, within=3600)] == ["loud"]


def test_a_worker_that_stops_is_forgotten(engine: Engine) -> None:
    beat(engine, "one", "cpu", None, 0)
    beat(engine, "two", "cpu", None, 0)

    forget(engine, "one")

    assert [worker.id for worker in alive(engine, within=3600)] == ["two"]


def test_first_beats_at_the_same_moment_make_one_worker(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda images: beat(engine, "one", "cpu", None, images), range(16)))

    assert len(alive(engine, within=3600)) == 1
