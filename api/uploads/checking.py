"""Checks uploads; Parquet files in processes of their own.

A damaged Parquet file can end the process that reads its footer: the reader of Arrow aborts where
some fields of the footer contradict each other. That must not be the process of the web server.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from api.http.problems import Problem
from api.uploads.checks import find_fault
from difficulty_service.base.apart import Apart, ProcessEnded

NUMBER = 2  # of processes, each of which checks one file at a time: none is taken for another
ENDED = "reading it ends the process that does"


class UploadChecks:
    """Checks uploads, some of them in processes that start when they are first needed."""

    def __init__(self) -> None:
        self._apart = Apart(_checker, processes=NUMBER)

    def check(self, path: Path, format_name: str) -> None:
        """Checks that an upload has the declared format and is safe to read, by its index alone."""
        try:
            find = self._apart.call if format_name == "parquet" else find_fault
            fault = find(path, format_name)
        except ProcessEnded:
            # No traceback: it would show where this process waited, not what ended the other.
            structlog.get_logger().warning("upload-check-ended", upload=path.stem, reason=ENDED)
            fault = ENDED
        if fault is not None:
            raise Problem(
                422,
                "unreadable",
                f"this is not a readable {format_name} file: {fault}",
                "delete the upload, recreate the file and send it as a new upload",
            )

    def close(self) -> None:
        """Ends the processes, once their uploads are checked."""
        self._apart.close()


def _checker() -> Callable[[Path, str], str | None]:
    return find_fault
