"""Work on threads: results in order, little under way, errors passed on."""

import threading
import time
from collections.abc import Iterator

import pytest

from difficulty_service.base.threads import map_in_order, map_in_turns, one_ahead


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_at_first(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    assert list(map_in_order(slow_at_first, range(20), 4)) == [item * item for item in range(20)]


def test_items_are_taken_only_a_few_ahead_of_the_results() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = map_in_order(lambda item: item, items(), 3)
    next(results)

    assert len(taken) <= 5
    results.close()


def test_an_error_reaches_the_caller() -> None:
    def fail(item: int) -> int:
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        list(map_in_order(fail, range(3), 2))


def test_every_thread_is_initialised() -> None:
    initialised = set()

    names = set(
        map_in_order(
            lambda _: threading.current_thread().name,
            range(50),
            3,
            lambda: initialised.add(threading.current_thread().name),
        )
    )

    assert names <= initialised


def test_nothing_works_while_the_results_of_a_turn_are_used() -> None:
    working: list[int] = []

    def work(item: int) -> int:
        working.append(item)
        return -item

    results = map_in_turns(work, [[1, 2, 3], [], [4, 5]], 2)

    assert next(results) == -1
    assert sorted(working) == [1, 2, 3]
    assert [next(results), next(results)] == [-2, -3]
    time.sleep(0.02)
    assert sorted(working) == [1, 2, 3]
    assert list(results) == [-4, -5]


def test_an_error_ends_a_turn_without_the_rest_of_its_work() -> None:
    worked: list[int] = []

    def fail(item: int) -> int:
        worked.append(item)
        time.sleep(0.01)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        next(map_in_turns(fail, [range(100)], 2))

    assert len(worked) < 100


def test_the_same_threads_work_in_every_turn() -> None:
    turns = map_in_turns(lambda _: threading.get_ident(), [range(20)] * 10, 2)

    assert len(set(turns)) <= 2


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_each_item_is_given_when_the_next_one_is_made(count: int) -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for item in range(count):
            made.append(item)
            yield item

    given = []
    for item in one_ahead(items()):
        given.append(item)
        assert len(made) == min(item + 2, count)

    assert given == list(range(count))
