"""How a command ends on a key press or SIGTERM."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from difficulty_service.cli.console import err


class Terminated(KeyboardInterrupt):
    """The process was told to end by SIGTERM, which saves as much as a key press does."""


@contextmanager
def exit_when_interrupted(message: str) -> Iterator[None]:
    """Ends the process when it is interrupted within the context, after what was done is saved.

    The exit code is 128 plus the number of the signal, as of any program that a signal ends.

    Args:
        message: Printed at the end.
    """
    handles_signals = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if handles_signals else None
    try:
        yield
    except KeyboardInterrupt as interrupt:
        err.print(message)
        number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
        # A key press while a thread is joined makes Python regard it as finished. The thread would
        # still be inside torch when the interpreter exits, and torch aborts on that.
        sys.stdout.flush()
        os._exit(128 + number)
    finally:
        if handles_signals:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated
