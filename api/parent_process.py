"""Child processes that notice when their parent has ended, however it ended."""

import multiprocessing
import threading
from collections.abc import Callable


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
