"""Work in a thread ends with its context, however that ends."""

import threading
from collections.abc import Callable

import pytest

from api.background import in_background


def test_the_work_goes_on_within_the_context_and_has_ended_after_it() -> None:
    rounds: list[int] = []
    twice = threading.Event()

    def count(wait: Callable[[float], bool]) -> None:
        while not wait(0.001):
            rounds.append(len(rounds))
            if len(rounds) > 1:
                twice.set()

    def fail() -> None:
        with in_background("counter", count):
            assert twice.wait(30)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert "counter" not in {thread.name for thread in threading.enumerate()}
