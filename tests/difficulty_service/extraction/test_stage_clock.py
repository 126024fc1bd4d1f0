"""Stages are timed on whatever thread they run."""

import io
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from difficulty_service.extraction.stage_clock import StageClock


def test_seconds_of_all_threads_add_up() -> None:
    clock = StageClock()

    def work(_: int) -> None:
        with clock.busy("work"):
            time.sleep(0.02)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))

    clock.declare({"work": 4})

    (stage,) = clock.stages()
    assert stage.busy >= 8 * 0.02
    assert stage.threads == 4
    assert 0 < stage.share <= 1


def test_a_stage_that_failed_is_counted_too() -> None:
    clock = StageClock()

    def fail() -> None:
        with clock.busy("work"):
            time.sleep(0.01)
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        fail()

    assert clock.stages()[0].busy >= 0.01


def test_reading_is_on_the_account_of_its_stage_and_gives_the_same_bytes() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(0.01)
            return super().read(size)

    clock = StageClock()

    file = clock.reading(lambda: Slow(b"image"), "read")()

    assert file.read() == b"image"
    assert clock.seconds_here("read") >= 0.01


def test_what_another_thread_added_is_not_added_here() -> None:
    clock = StageClock()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(clock.add, "read", 1.0).result()

    assert clock.seconds_here("read") == 0
    assert clock.stages()[0].busy == 1.0


def test_stages_come_in_the_order_of_their_declaration_then_of_their_work() -> None:
    clock = StageClock()
    clock.add("append", 1.0)
    clock.declare({"read": 2, "forward": 1})

    assert [(stage.name, stage.threads) for stage in clock.stages()] == [
        ("read", 2),
        ("forward", 1),
        ("append", 1),
    ]
