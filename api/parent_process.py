"""Child processes that notice when their parent has ended, however it ended."""

import ctypes
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # in sys/prctl.h


def call_after_parent(action: Callable[[], None]) -> None:
    """Starts a thread that calls an action once the parent process has ended.

    A parent that is killed cannot tell its children to stop.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        action()

    threading.Thread(target=wait, name="parent-watcher", daemon=True).start()


def die_with_parent() -> None:
    """Lets the kernel kill this process once the thread that started it has ended; on Linux only.

    Unlike `call_after_parent` it also works while this process cannot run any Python code.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
