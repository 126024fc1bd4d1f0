"""Signals that stop a run after it is saved."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], int]]:
    """Records SIGTERM and the first Ctrl-C; a second signal ends the process at once.

    Yields:
        A function that returns the number of the received signal, 0 for none.
    """
    received = 0

    def record(number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received = number
        # The second signal must not wait for the checkpoint.
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        # In Python only the main thread can handle signals.
        yield lambda: 0
        return
    before = {number: signal.signal(number, record) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
