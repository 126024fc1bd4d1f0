"""Work that goes on in a thread while something else is done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Wait = Callable[[float], bool]
"""Waits for so many seconds; gives true at once when the work is to end."""


@contextmanager
def in_background(
    name: str, work: Callable[[Wait], None], longest: float | None = None
) -> Iterator[None]:
    """Runs a function in a thread within the context; it ends when its wait gives true.

    At the end of the context the thread is waited for, at most `longest` seconds.
    """
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended.wait,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(longest)
