"""Joins a table that somebody sends to the samples of a job, for a process with limits.

Of a table of a stranger nothing is believed: its index is checked before its columns are read, and
neither the time nor the memory that reading it takes, nor its end, is that of the web server.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from api.http.problems import invalid
from api.jobs.joined_table import JOINED_FILE, JoinedColumn, JoinedTable
from api.results.joined_columns import write_joined
from api.uploads.checking import check_parquet_index
from difficulty_service.base.errors import DifficultyError, ReportError
from difficulty_service.base.tables import map_arrow
from difficulty_service.datasets.sample import TableLimits
from difficulty_service.datasets.table_files import LIMITED_EXTENSIONS
from difficulty_service.review.joined_tables import ScoredDataset, TableSource, join_tables
from difficulty_service.review.sample_columns import shorten_value

LONGEST_NAME = 100
"""Characters of the name of a table."""

LONGEST_NOTE = 1000
MOST_NOTES = 20

IDS_FILE = "ids.arrow"
"""Name of the file with the sample ids, in a column `ids`."""

_PARQUET = ".parquet"


@dataclass(frozen=True)
class SentTable:
    """A table that is to be attached.

    Attributes:
        name: Name of its file, as whoever sends it calls it.
        columns: The columns that are wanted; all where none is named.
    """

    name: str
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        is_file = self.name.lower().endswith(LIMITED_EXTENSIONS) and "/" not in self.name
        # Printable text has neither controls, which could change how it is read, nor surrogates.
        if not is_file or len(self.name) > LONGEST_NAME or not self.name.isprintable():
            raise invalid(
                f"{self.name[:LONGEST_NAME]!r} is no name of a table",
                f"give a file name of at most {LONGEST_NAME} characters that ends in "
                f"{', '.join(LIMITED_EXTENSIONS)}",
                "table",
            )

    def file(self, folder: Path) -> Path:
        """Where the table is in a folder that `receiving` has made."""
        return folder / f"table{Path(self.name).suffix.lower()}"


Join = Callable[[Path, SentTable, str | None, TableLimits], JoinedTable]


def joiner() -> Join:
    """The function of a process that joins tables."""
    return _join


def _join(
    folder: Path, table: SentTable, id_column: str | None, limits: TableLimits
) -> JoinedTable:
    """Writes the columns of a table in a folder, for the sample ids in it."""
    path = table.file(folder)
    try:
        if path.suffix == _PARQUET:
            check_parquet_index(path)
        batch, _ = map_arrow(folder / IDS_FILE)
        source = TableSource(str(path), table.columns, table.name)
        joined = join_tables(batch["ids"], [source], ScoredDataset(_no_dataset, id_column), limits)
    except MemoryError:
        raise ReportError(
            f"{table.name} takes more memory than a table may", "send fewer rows or columns"
        ) from None
    except DifficultyError as error:
        raise ReportError(_named(error.problem, path, table), *error.remedy) from error
    if not joined.columns:
        raise ReportError(
            f"{table.name} has no column that can be shown"
            f"{''.join(f': {shorten_value(note, LONGEST_NOTE)}' for note in joined.notes[-1:])}",
            "add one of numbers, dates or texts",
        )
    write_joined(folder / JOINED_FILE, batch["ids"], joined.columns)
    return JoinedTable(
        columns=tuple(
            JoinedColumn(name=column.name, kind=column.kind) for column in joined.columns.values()
        ),
        notes=tuple(shorten_value(note, LONGEST_NOTE) for note in joined.notes[:MOST_NOTES]),
    )


def _named(problem: str, path: Path, table: SentTable) -> str:
    """A problem that names the table as its sender does."""
    named = problem.replace(str(path), table.name).replace(path.name, table.name)
    return named if table.name in named else f"{table.name} cannot be read: {named}"


def _no_dataset() -> NoReturn:
    raise AssertionError("a table that was sent is no dataset")
