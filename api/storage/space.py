"""Space on the disks of the service: a floor above which it takes more, a reserve for deletions.

Deleting a row takes some space in the log of SQLite before it frees any. So a file beside the
database reserves a little, which deletions that meet a full disk give up.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from api.settings import Settings
from difficulty_service.base.files import replacing
from difficulty_service.datasets.storage import is_uri

RESERVE_BYTES = 4 << 20  # a deletion of a job with thousands of events takes far less
FULL_SQLITE_CODE = 13  # SQLITE_FULL
FULL_SQLITE_EXTENDED_CODES = (4874,)  # SQLITE_IOERR_SHMSIZE: no room for the index of the log
FULL_STATE = "53100"  # disk_full of PostgreSQL

P = ParamSpec("P")
T = TypeVar("T")


def is_full(error: BaseException) -> bool:
    """Whether an error of a database says that its disk is full."""
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorcode", 0)
    return isinstance(error, sa.exc.DBAPIError) and (
        code & 0xFF == FULL_SQLITE_CODE
        or code in FULL_SQLITE_EXTENDED_CODES
        or getattr(original, "sqlstate", None) == FULL_STATE
    )


def free_bytes(settings: Settings) -> int:
    """Free space on the fullest disk of this machine that the service writes to."""
    places = [settings.data_dir]
    if not is_uri(settings.artifact_root):
        places.append(Path(settings.artifact_root))
    url = sa.make_url(settings.resolved_database_url.get_secret_value())
    if url.get_backend_name() == "sqlite" and url.database:
        places.append(Path(url.database))
    return min(_free_bytes(place) for place in places)


def _free_bytes(place: Path) -> int:
    """Free space where a file or folder is, or would be."""
    place = place.absolute()
    while True:
        try:
            status = os.statvfs(place)
        except FileNotFoundError:
            place = place.parent
        else:
            return status.f_bavail * status.f_frsize


def has_space(settings: Settings) -> bool:
    """Whether there is more free space than the service leaves to deletions."""
    return free_bytes(settings) >= settings.min_free_bytes


def require_space(settings: Settings, more: int = 0) -> None:
    """Refuses to write this number of bytes where less than the floor would be left.

    Raises:
        OSError: As if the disk were full.
    """
    if free_bytes(settings) - more < settings.min_free_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def keep_reserve(engine: sa.Engine) -> None:
    """Reserves space for deletions beside an SQLite database, if it is not and there is enough."""
    reserve = _reserve(engine)
    if reserve is None or reserve.exists() or _free_bytes(reserve) < 2 * RESERVE_BYTES:
        return
    with suppress(OSError), replacing(reserve) as temporary, temporary.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def makes_room(
    function: Callable[Concatenate[sa.Engine, P], T],
) -> Callable[Concatenate[sa.Engine, P], T]:
    """A deletion of one transaction, which takes the reserve where it meets a full disk."""

    @wraps(function)
    def call(engine: sa.Engine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = function(engine, *args, **kwargs)
        except sa.exc.DBAPIError as error:
            reserve = _reserve(engine)
            if not is_full(error) or reserve is None or not reserve.exists():
                raise
            reserve.unlink(missing_ok=True)
            result = function(engine, *args, **kwargs)
        keep_reserve(engine)
        return result

    return call


def _reserve(engine: sa.Engine) -> Path | None:
    """The file that reserves space; None for a database that is elsewhere."""
    if engine.dialect.name != "sqlite" or not engine.url.database:
        return None
    return Path(f"{engine.url.database}.reserve")
