"""Results that are made one at a time, without the processes that make them in the service."""

import threading
from collections.abc import Iterator

import pytest

from api.results.one_by_one import OneByOne


@pytest.fixture
def results() -> Iterator[OneByOne]:
    results = OneByOne("test", most_waiting=2)
    yield results
    results.close()


def test_a_result_that_was_stopped_can_be_asked_for_again_before_it_has_ended(
    results: OneByOne,
) -> None:
    begun, ending, made = threading.Event(), threading.Event(), threading.Event()

    def killed() -> str:
        begun.set()
        ending.wait()
        return "its process was ended"

    assert results.begin("a", killed)
    begun.wait()
    results.stop("a")
    assert results.begin("a", made.set)
    ending.set()

    assert made.wait(60)
    results.close()  # which waits for what is being made
    assert results.known("a") is None


def test_a_failure_is_told_until_the_result_is_asked_for_again(results: OneByOne) -> None:
    going_on, made = threading.Event(), threading.Event()

    def fail() -> str:
        return "it is too large"

    def make() -> None:
        made.set()
        going_on.wait()

    results.begin("a", fail)
    results.begin("b", made.set)
    assert made.wait(60)
    progress = results.known("a")
    assert progress is not None
    assert progress.failure == "it is too large"

    made.clear()
    results.begin("a", make)
    assert made.wait(60)
    again = results.known("a")
    going_on.set()
    assert again is not None
    assert again.failure is None


def test_no_more_results_than_that_wait(results: OneByOne) -> None:
    going_on = threading.Event()

    def make() -> None:
        going_on.wait()

    try:
        begun = [results.begin(name, make) for name in "abc"]
        again = results.begin("b", make)
        assert (begun, again, results.pending()) == ([True, True, False], True, ["a", "b"])
    finally:
        going_on.set()
