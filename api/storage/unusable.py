"""The errors of a database that no retry mends."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from difficulty_service.errors import DifficultyError

DAMAGED_SQLITE_CODES = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB


class DatabaseUnusable(DifficultyError):
    """The database is of a kind or at a revision that this program does not support."""


class DatabaseDamaged(DatabaseUnusable):
    """The file of the database is damaged."""


def is_damaged(error: BaseException) -> bool:
    """Whether an error says that the file of the database is damaged."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    return isinstance(error, DBAPIError) and code & 0xFF in DAMAGED_SQLITE_CODES


@contextmanager
def naming_damage(engine: Engine) -> Iterator[None]:
    """Within the context, errors of a damaged file name the file and the remedy.

    Raises:
        DatabaseDamaged: The file is damaged.
    """
    try:
        yield
    except DBAPIError as error:
        if not is_damaged(error):
            raise
        file = engine.url.database
        raise DatabaseDamaged(
            f"the database {file} is damaged ({error.orig})",
            f"stop the server and all workers, then restore a backup of {file}, or save what can "
            f"be read with `sqlite3 {file} .recover | sqlite3 new.sqlite`, and start them again",
            parameter="database_url",
        ) from error
