"""What was joined of a table that is attached to a job: what is recorded, and its file.

Apart from the database, which the process that joins a table knows nothing of.
"""

from typing import Annotated

from pydantic import Strict

from difficulty_service.base.contract import Contract, Names
from difficulty_service.bodies.results import ColumnKind

JOINED_FILE = "joined.arrow"
"""Name of the file with the columns."""


class JoinedColumn(Contract):
    """A column of a table that was joined to the samples of a job."""

    name: str
    """Its name in the table."""
    kind: ColumnKind
    """What it is filtered by."""


class JoinedTable(Contract):
    """What was joined of a table."""

    columns: Annotated[tuple[JoinedColumn, ...], Strict(strict=False)]
    """Its columns that are shown, in their order."""
    notes: Names
    """What could not be joined or shown, in sentences."""
