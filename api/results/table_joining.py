"""Joins a table that somebody sends, or the dataset's own, to the samples of a job.

For a process with limits. Of a table of a stranger nothing is believed: its index is checked before
its columns are read, and neither the time nor the memory that reading it takes, nor its end, is
that of the web server.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from api.http.problems import invalid
from api.jobs.dataset import DatasetLocation, open_job_dataset
from api.jobs.joined_table import JOINED_FILE, JoinedColumn, JoinedTable
from api.results.joined_columns import write_joined
from api.settings import Settings
from api.uploads.checking import check_parquet_index
from difficulty_service.base.errors import DifficultyError, ReportError
from difficulty_service.base.tables import map_arrow
from difficulty_service.bodies.jobs import JobRequest
from difficulty_service.datasets.json_tables import ENDING as JSON
from difficulty_service.datasets.sample import Dataset, TableLimits
from difficulty_service.datasets.table_files import LIMITED_EXTENSIONS
from difficulty_service.reports.joined_tables import (
    DATASET,
    JoinedColumns,
    JoinedDataset,
    TableSource,
    join_tables,
)
from difficulty_service.reports.sample_columns import shorten_value

LONGEST_NAME = 100
"""Characters of the name of a table."""

ENDINGS = (*LIMITED_EXTENSIONS, JSON)
"""Endings of the names of tables that may be sent."""

LONGEST_NOTE = 1000
MOST_NOTES = 20

IDS_FILE = "ids.arrow"
"""Name of the file with the sample ids, in a column `ids`."""

_PARQUET = ".parquet"


@dataclass(frozen=True)
class SentTable:
    """A table that is to be attached."""

    name: str  # name of its file, as whoever sends it calls it
    columns: tuple[str, ...] = ()  # the columns that are wanted; all where none is named

    def __post_init__(self) -> None:
        is_file = self.name.lower().endswith(ENDINGS) and "/" not in self.name
        # Printable text has neither controls, which could change how it is read, nor surrogates.
        if not is_file or len(self.name) > LONGEST_NAME or not self.name.isprintable():
            raise invalid(
                f"{self.name[:LONGEST_NAME]!r} is no name of a table",
                f"give a file name of at most {LONGEST_NAME} characters that ends in "
                f"{', '.join(ENDINGS)}",
                "table",
            )

    def file(self, folder: Path) -> Path:
        """Where the table is in a folder that `receiving` has made."""
        return folder / f"table{Path(self.name).suffix.lower()}"


@dataclass(frozen=True)
class DatasetTable:
    """The dataset of a job, where it is a table, whose own columns are to be attached."""

    wanted: JobRequest  # what the job was to do
    location: DatasetLocation  # where its dataset is
    fingerprint: str | None  # its fingerprint when it was scored
    columns: tuple[str, ...] = ()  # the columns that are wanted; all where none is named

    @property
    def name(self) -> str:
        """What the table is called among those of the job."""
        return DATASET


Table = SentTable | DatasetTable
Join = Callable[[Path, Table, str | None, Settings], JoinedTable]


def check_name(name: str) -> str:
    """The name of a table that may be attached to a job; others are refused."""
    return name if name == DATASET else SentTable(name).name


def joiner() -> Join:
    """The function of a process that joins tables."""
    return _join


def _join(folder: Path, table: Table, id_column: str | None, settings: Settings) -> JoinedTable:
    """Writes the columns of a table, which is in a folder if it was sent, for the ids in it."""
    batch, _ = map_arrow(folder / IDS_FILE)
    try:
        if isinstance(table, SentTable):
            joined = _join_sent(batch["ids"], table, table.file(folder), id_column, settings)
        else:
            joined = _join_dataset(batch["ids"], table, id_column, settings)
    except MemoryError:
        raise ReportError(
            f"{table.name} takes more memory than a table may",
            "send fewer rows or columns" if isinstance(table, SentTable) else "name fewer columns",
        ) from None
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


def _join_sent(
    ids: pa.StringArray, table: SentTable, path: Path, id_column: str | None, settings: Settings
) -> JoinedColumns:
    source = TableSource(str(path), table.columns, table.name)
    dataset = JoinedDataset(_no_dataset, id_column)
    try:
        if path.suffix == _PARQUET:
            check_parquet_index(path)
        return join_tables(ids, [source], dataset, _limits(settings))
    except DifficultyError as error:
        raise ReportError(_named(error.problem, path, table), *error.remedy) from error


def _join_dataset(
    ids: pa.StringArray, table: DatasetTable, id_column: str | None, settings: Settings
) -> JoinedColumns:
    location = table.location

    def find() -> Dataset:
        opened = open_job_dataset(table.wanted, location, settings)
        return replace(opened, location=location.uri)

    dataset = JoinedDataset(find, id_column, table.fingerprint, location.boundary)
    source = TableSource(DATASET, table.columns)
    try:
        return join_tables(ids, [source], dataset, _limits(settings))
    except DifficultyError as error:
        problem = error.problem.replace(location.uri, location.name)
        raise ReportError(problem, *error.remedy, parameter=error.parameter) from error


def _limits(settings: Settings) -> TableLimits:
    return TableLimits(settings.max_rows, settings.max_text_bytes)


def _named(problem: str, path: Path, table: SentTable) -> str:
    """A problem that names the table as its sender does."""
    named = problem.replace(str(path), table.name).replace(path.name, table.name)
    return named if table.name in named else f"{table.name} cannot be read: {named}"


def _no_dataset() -> NoReturn:
    raise AssertionError("a table that was sent is no dataset")
