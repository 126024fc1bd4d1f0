"""Checks uploads; Parquet files in processes of their own.

A damaged Parquet file can end the process that reads its footer: the reader of Arrow aborts where
some fields of the footer contradict each other. That must not be the process of the web server.
"""

import multiprocessing
import os
import queue
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import structlog

from api.http.problems import Problem
from api.parent_process import call_after_parent
from api.uploads.checks import find_fault

NUMBER = 2  # of processes, each of which checks one file at a time
ENDED = "reading it ends the process that does"


class UploadChecks:
    """Checks uploads, some of them in processes that start when they are first needed."""

    def __init__(self) -> None:
        # A pool of one process each, so that no upload is taken for another one that ends it.
        self._idle: queue.LifoQueue[ProcessPoolExecutor | None] = queue.LifoQueue()
        for _ in range(NUMBER):
            self._idle.put(None)

    def check(self, path: Path, format_name: str) -> None:
        """Checks that an upload has the declared format, by its index alone.

        Args:
            path: File of the upload.
            format_name: The declared format.

        Raises:
            Problem: It is damaged, of another format, or not safe to read.
        """
        if format_name == "parquet":
            fault = self._find_fault_apart(path, format_name)
        else:
            fault = find_fault(path, format_name)
        if fault is not None:
            raise Problem(
                422,
                "unreadable",
                f"this is not a readable {format_name} file: {fault}",
                "delete the upload, recreate the file and send it as a new upload",
            )

    def close(self) -> None:
        """Ends the processes, once their uploads are checked."""
        for _ in range(NUMBER):
            if (process := self._idle.get()) is not None:
                process.shutdown()

    def _find_fault_apart(self, path: Path, format_name: str) -> str | None:
        process = self._idle.get()
        try:
            if process is None:
                # Never forked: threads of this process may hold locks, for which a fork would wait.
                context = multiprocessing.get_context("spawn")
                process = ProcessPoolExecutor(1, context, _set_up_process)
            return process.submit(find_fault, path, format_name).result()
        except BrokenProcessPool:
            # No traceback: it would show where this process waited, not what ended the other.
            structlog.get_logger().warning("upload-check-ended", upload=path.stem, reason=ENDED)
            process = None
            return ENDED
        finally:
            self._idle.put(process)


def _set_up_process() -> None:
    # Signals to the process group go to the server too, which ends this process last.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A server that was killed could not end this process.
    call_after_parent(lambda: os._exit(1))
