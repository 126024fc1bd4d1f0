"""Joins columns of other tables, or of the dataset's own, to scored samples by their ids."""

import re
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import AuditError, DifficultyError, ReportError, Setting
from difficulty_service.base.wording import count_of, did_you_mean, list_names
from difficulty_service.datasets.sample import Dataset, TableLimits
from difficulty_service.datasets.storage import Boundary
from difficulty_service.datasets.table_columns import IMAGE_IDS, PATH_NAMES
from difficulty_service.datasets.table_files import (
    NAMED_EXTENSIONS,
    TableFile,
    require_rows,
    require_size,
)
from difficulty_service.pages.stored_images import what_changed
from difficulty_service.reports.sample_columns import (
    SampleColumn,
    SampleColumns,
    can_show,
    to_sample_column,
)
from difficulty_service.scores.compared_values import match_ids
from difficulty_service.scores.joined_files import concatenate, open_tables

DATASET = "dataset"
"""Name of the table that the dataset is."""

SAMPLE_ID = "sample_id"

ID_NAMES = (SAMPLE_ID, *PATH_NAMES, *IMAGE_IDS)
"""Names of columns with sample ids, by priority."""

LISTED = 20
"""Number of columns that a sentence names."""

FIRST_COUNTS = "and the first row of each counts"

MOST_COLUMNS = 40
"""Number of columns that are shown, of all tables together."""

MOST_READ = 1000
"""Number of columns up to which all of a table with limits are read where none is named."""

_ENDINGS = "|".join(map(re.escape, NAMED_EXTENSIONS))
_SOURCE = re.compile(
    rf"(?P<table>{DATASET}|.+?(?:{_ENDINGS}))(?::(?P<names>.*))?", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True)
class TableSource:
    """A table and the columns of it that are wanted; all where none is named.

    Attributes:
        name: What sentences call the table; empty for the name of its file.
    """

    table: str
    names: tuple[str, ...] = ()
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "TableSource":
        """Reads `TABLE` or `TABLE:name,name`, where a table is a file, or the dataset."""
        match = _SOURCE.fullmatch(text)
        if match is None:
            return cls(text)
        named = (name.strip() for name in (match["names"] or "").split(","))
        return cls(match["table"], tuple(dict.fromkeys(filter(None, named))))

    @property
    def title(self) -> str:
        """The table in a sentence."""
        if self.name:
            return self.name
        return "the dataset" if self.table == DATASET else PurePosixPath(self.table).name


@dataclass(frozen=True)
class JoinedColumns:
    """Columns of some samples.

    Attributes:
        notes: What could not be joined or shown, in sentences.
    """

    columns: SampleColumns = field(default_factory=dict)
    notes: tuple[str, ...] = ()


NOTHING_JOINED = JoinedColumns()

FindDataset = Callable[[], Dataset]


@dataclass(frozen=True)
class JoinedDataset:
    """What is known of the dataset of the scores.

    Attributes:
        find: Opens it; only called where its own table is wanted. Raises DifficultyError.
        id_column: The column that its sample ids were read from; None for none.
        fingerprint: Its fingerprint when it was scored; None where that is unknown.
        boundary: Boundary that reading its table must not leave; None for none.
    """

    find: FindDataset
    id_column: str | None = None
    fingerprint: str | None = None
    boundary: Boundary | None = None


def join_tables(
    sample_ids: pa.StringArray,
    sources: Sequence[TableSource],
    dataset: JoinedDataset,
    limits: TableLimits | None = None,
) -> JoinedColumns:
    """The columns of some tables for each sample, those of the first table first.

    Of several rows with the id of a sample, the first one counts. What is left out is in the notes.
    `limits` are for tables of people who are not trusted.

    Raises:
        ReportError: A table cannot be read, has no column of a name or of ids, or no row for any
            of the samples, or exceeds a limit.
    """
    columns: dict[str, SampleColumn] = {}
    notes: list[str] = []
    left_out: list[str] = []
    for source in sources:
        table, not_shown, assumed = _read(source, dataset, limits)
        rows, note = _match(source, sample_ids, table)
        notes += [*assumed, *note]
        for place, name in enumerate(table.column_names[1:], 1):
            values = table.column(place).take(rows)
            shown = to_sample_column(free_name(name, source.title, columns), values)
            if isinstance(shown, str):
                not_shown.append(f"{name} ({shown})")
            elif len(columns) < MOST_COLUMNS:
                columns[shown.name] = shown
            else:
                left_out.append(name)
        if not_shown:
            notes.append(f"{source.title}: not shown: {list_names(not_shown, LISTED)}")
    if left_out:
        notes.append(
            f"{count_of(len(left_out), 'column')} beyond the first {MOST_COLUMNS} are not shown: "
            f"{list_names(left_out, LISTED)}; name the columns that are to be shown"
        )
    return JoinedColumns(columns, tuple(notes))


def free_name(name: str, title: str, taken: Container[str]) -> str:
    """The name of a column, with the title of its table where another table has the same."""
    if name not in taken:
        return name
    names = (f"{name} ({title}{f' {number}' if number > 1 else ''})" for number in count())
    return next(each for each in names if each not in taken)


def describe_unmatched(title: str, rows: pa.Array, keys: pa.ChunkedArray) -> list[str]:
    """What was not joined, in one sentence; none where all was."""
    known = keys.drop_null()
    distinct = pc.count_distinct(known).as_py()
    used = len(rows) - rows.null_count
    repeated = len(known) - distinct
    facts = [
        (rows.null_count, f"of {len(rows):,} samples have no row"),
        (distinct - used, f"of {distinct:,} ids of the table have no sample"),
        (keys.null_count, "row has no id" if keys.null_count == 1 else "rows have no id"),
        (repeated, f"{'row repeats' if repeated == 1 else 'rows repeat'} an id, {FIRST_COUNTS}"),
    ]
    parts = [f"{number:,} {what}" for number, what in facts if number]
    return [f"{title}: {', '.join(parts)}"] if parts else []


def read_dataset_columns(
    dataset: Dataset,
    names: Sequence[str],
    id_column: str | None,
    parameter: str,
    files: Sequence[TableFile] | None = None,
) -> pa.Table:
    """Some columns of a dataset that is a table, after the ids as `sample_id`.

    Without a column of ids every row must be a sample. `parameter` is what asks for the columns;
    `files` are those of the table, where they are open.

    Raises:
        ReportError: They cannot be read, or it is unknown which sample a row is.
    """
    wanted = [*names, *([] if id_column is None else [id_column])]
    try:
        files = files or open_tables(dataset.location, wanted[len(names) :])
        table = concatenate(dataset.location, files, wanted)
    except DifficultyError as error:
        raise ReportError(
            f"the column {', '.join(map(repr, names))} cannot be read from {dataset.location}: "
            f"{error.problem}",
            "name a column of the score file or of a dataset that is a table",
            parameter=parameter,
        ) from error
    if id_column is None and len(table) != len(dataset.sample_ids):
        raise ReportError(
            f"{len(table):,} rows of {dataset.location} are {len(dataset.sample_ids):,} samples, "
            "so it is unknown which of them a row belongs to",
            "name the column with the sample ids as ",
            Setting("id_column"),
            parameter=parameter,
        )
    ids = pa.array(dataset.sample_ids, pa.string()) if id_column is None else table[id_column]
    return _with_ids(ids, table, names)


def _with_ids(ids: pa.Array | pa.ChunkedArray, table: pa.Table, names: Sequence[str]) -> pa.Table:
    return pa.Table.from_arrays([ids, *(table[name] for name in names)], [SAMPLE_ID, *names])


def _read(
    source: TableSource, dataset: JoinedDataset, limits: TableLimits | None
) -> tuple[pa.Table, list[str], list[str]]:
    """The columns of a table after its ids, those not shown, with reasons, and what was assumed."""
    ids = [*filter(None, [dataset.id_column]), *ID_NAMES]
    opened = dataset.find() if source.table == DATASET else None
    location = source.table if opened is None else opened.location
    try:
        files = open_tables(location, ids, limits, None if opened is None else dataset.boundary)
        if limits is not None:
            _require_limits(files, source, limits)
        schema = files[0].schema
        names, not_shown = _choose(schema, source)
        if opened is not None:
            names = [name for name in names if name != dataset.id_column]
            table = read_dataset_columns(opened, names, dataset.id_column, "columns", files)
            # The scores have said what was assumed.
            changed = what_changed(dataset.fingerprint, opened, "the dataset", found="its rows")
            return table, not_shown, [*changed]
        key = _id_column(schema, ids, source)
        names = [name for name in names if name != key]
        table = concatenate(location, files, [key, *names])
    except ReportError:
        raise
    except DifficultyError as error:
        raise _cannot_join(source, error) from error
    assumed = [f"{source.title} {file.note}" for file in files if file.note]
    return _with_ids(table[key], table, names), not_shown, assumed


def _require_limits(files: Sequence[TableFile], source: TableSource, limits: TableLimits) -> None:
    """Refuses a table that exceeds a limit."""
    require_rows(sum(file.num_rows for file in files), limits, source.title)
    for file in files:
        if file.rows is not None:
            require_size(file.rows.nbytes, limits)
    if not source.names and (number := len(files[0].schema)) > MOST_READ:
        raise ReportError(
            f"{source.title} has {number:,} columns, more than the {MOST_READ:,} that are read "
            "where none is named",
            "name the columns that are to be shown",
            parameter="columns",
        )


def _match(
    source: TableSource, sample_ids: pa.StringArray, table: pa.Table
) -> tuple[pa.Array, list[str]]:
    """The row of each sample, null where it has none, and a sentence where not all match."""
    keys = table.column(0)
    try:
        rows = match_ids(pa.chunked_array([sample_ids]), keys, SAMPLE_ID, keep_first=True)
    except AuditError as error:
        raise _cannot_join(source, error) from error
    return rows, describe_unmatched(source.title, rows, keys)


def _cannot_join(source: TableSource, error: DifficultyError) -> ReportError:
    return ReportError(
        f"the columns of {source.title} cannot be joined to the scores: {error.problem}",
        *error.remedy,
        parameter="columns",
    )


def _id_column(schema: pa.Schema, candidates: Sequence[str], source: TableSource) -> str:
    for name in candidates:
        if schema.names.count(name) == 1:
            return name
    raise ReportError(
        f"{source.title} has no column of sample ids: its columns are "
        f"{list_names(schema.names, LISTED)}",
        f"name the one with the ids {SAMPLE_ID}",
        parameter="columns",
    )


def _choose(schema: pa.Schema, source: TableSource) -> tuple[list[str], list[str]]:
    """The columns to read, and those that are not shown with the reason."""
    for name in source.names:
        if name not in schema.names:
            raise ReportError(
                f"{source.title} has no column {name!r}: {did_you_mean(name, schema.names)}its "
                f"columns are {list_names(schema.names, LISTED)}",
                parameter="columns",
            )
    number = Counter(schema.names)
    names, not_shown = [], []
    for name in dict.fromkeys(source.names or schema.names):
        if number[name] > 1:
            not_shown.append(f"{name} (several columns have this name)")
        elif can_show(schema.field(name).type):
            names.append(name)
        else:
            not_shown.append(f"{name} ({schema.field(name).type})")
    return names, not_shown
