"""A run that is asked to end saves itself first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], int]]:
    """Notes SIGTERM and the first Ctrl-C instead of dying of them; a second one ends at once.

    Yields:
        The signal that came, 0 for none.
    """
    came = 0

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = number
        # Whoever asks twice does not want to wait for the checkpoint.
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        # Python lets only the main thread handle signals.
        yield lambda: 0
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
