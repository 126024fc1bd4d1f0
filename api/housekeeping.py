"""What a server does beside answering: it finishes what an earlier one left behind."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from api.jobs.files import delete_left_files, finish_deletions
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.storage.database import is_damaged
from api.uploads.checking import UploadChecks
from api.uploads.store import complete_received

SWEEP_SECONDS = 600.0
"""Seconds between two sweeps of files that deleted jobs have left."""

END_SECONDS = 5.0  # to wait for the sweep in progress; whatever it leaves, the next one finds


@contextmanager
def housekeeping(
    engine: Engine, settings: Settings, artifacts: Artifacts, checks: UploadChecks
) -> Iterator[None]:
    """Keeps house in a thread within the context."""
    ended = threading.Event()

    def keep_house() -> None:
        _try("uploads", lambda: complete_received(engine, settings, checks))
        while not ended.is_set():
            _try("deletions", lambda: finish_deletions(engine, settings, artifacts))
            _try("left-files", lambda: delete_left_files(engine, settings, artifacts))
            ended.wait(SWEEP_SECONDS)

    thread = threading.Thread(target=keep_house, name="housekeeping", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_SECONDS)


def _try(task: str, act: Callable[[], int]) -> None:
    log = structlog.get_logger().bind(task=task)
    try:
        number = act()
    except (OSError, SQLAlchemyError) as error:
        remedy = "restore a backup of the database" if is_damaged(error) else "it is tried again"
        log.warning("housekeeping-failed", reason=type(error).__name__, remedy=remedy)
    else:
        if number:
            log.info("housekeeping", number=number)
