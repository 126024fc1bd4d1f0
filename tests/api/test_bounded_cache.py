"""A bounded cache loads each value once and keeps those used last."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.bounded_cache import BoundedCache


def test_a_value_is_loaded_once_however_many_threads_want_it() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    together = threading.Barrier(4)
    loads: list[str] = []

    def load() -> int:
        loads.append("cat")
        return 7

    def get(_: int) -> int:
        together.wait()
        return cache.get("cat", load)

    with ThreadPoolExecutor(4) as threads:
        values = list(threads.map(get, range(4)))

    assert values == [7] * 4
    assert loads == ["cat"]


def test_the_value_used_longest_ago_leaves_before_the_next_is_loaded() -> None:
    history: list[str] = []
    cache: BoundedCache[str, str] = BoundedCache(2, lambda value: history.append(f"evict {value}"))

    def get(key: str) -> None:
        def load() -> str:
            history.append(f"load {key}")
            return key

        assert cache.get(key, load) == key

    for key in ("a", "b", "a", "c", "a", "b"):
        get(key)

    assert history == ["load a", "load b", "evict b", "load c", "evict c", "load b"]


def test_a_load_that_takes_long_keeps_nobody_from_another_value() -> None:
    cache: BoundedCache[str, str] = BoundedCache(2)
    begun, ended = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        assert ended.wait(60)
        return "slow"

    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(cache.get, "slow", wait)
        assert begun.wait(60)
        quick = cache.get("quick", lambda: "quick")
        ended.set()

    assert (slow.result(), quick) == ("slow", "quick")


def test_a_value_that_must_leave_while_it_is_loaded_leaves_once_it_is() -> None:
    evicted: list[str] = []
    cache: BoundedCache[str, str] = BoundedCache(1, evicted.append)

    def load() -> str:
        cache.get("next", lambda: "next")
        assert evicted == []
        return "first"

    assert cache.get("first", load) == "first"
    assert evicted == ["first"]
    assert cache.get("next", lambda: "again") == "next"


def test_only_a_value_that_is_loaded_is_known() -> None:
    cache: BoundedCache[str, str] = BoundedCache(2)
    known_while_loading: list[str | None] = []

    def load() -> str:
        known_while_loading.append(cache.known("cat"))
        return "loaded"

    def fail() -> str:
        raise OSError("no dog")

    before = cache.known("cat")
    cache.get("cat", load)
    with pytest.raises(OSError, match="no dog"):
        cache.get("dog", fail)

    assert (before, known_while_loading, cache.known("cat")) == (None, [None], "loaded")
    assert cache.known("dog") is None


def test_a_known_value_that_is_asked_for_counts_as_used() -> None:
    cache: BoundedCache[str, str] = BoundedCache(2)
    for key in ("a", "b"):
        cache.get(key, lambda: "value")

    cache.known("a")
    cache.get("c", lambda: "value")

    assert (cache.known("a"), cache.known("b")) == ("value", None)


def test_clearing_evicts_every_value() -> None:
    evicted: list[int] = []
    cache: BoundedCache[str, int] = BoundedCache(3, evicted.append)
    for number in range(3):
        cache.get(str(number), lambda number=number: number)

    cache.clear()

    assert evicted == [0, 1, 2]


def test_a_load_that_fails_leaves_nothing_and_may_be_tried_again() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1)

    def fail() -> int:
        raise OSError("no weights")

    with pytest.raises(OSError, match="no weights"):
        cache.get("cat", fail)

    assert cache.get("cat", lambda: 3) == 3
