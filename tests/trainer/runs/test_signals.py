"""Signals are recorded instead of ending a run."""

import signal
import subprocess
import sys
import threading

import pytest

from trainer.runs.train import stop_on_signals

TWICE = """
import os, signal
from trainer.runs.train import stop_on_signals

with stop_on_signals() as came:
    os.kill(os.getpid(), signal.SIGTERM)
    assert came() == signal.SIGTERM
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_recorded(number: signal.Signals) -> None:
    with stop_on_signals() as signal_that_came:
        before = signal_that_came()
        signal.raise_signal(number)
        after = signal_that_came()

    assert (before, after) == (0, number)


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    with stop_on_signals():
        signal.raise_signal(signal.SIGTERM)

    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.slow
def test_a_second_signal_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], check=False)  # noqa: S603 - our own script

    assert done.returncode == -signal.SIGTERM


def test_other_threads_ignore_signals() -> None:
    noted: list[int] = []

    def watch() -> None:
        with stop_on_signals() as signal_that_came:
            noted.append(signal_that_came())

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()

    assert noted == [0]
