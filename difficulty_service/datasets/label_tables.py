"""A table of labels that people gave samples, of which only some columns are read."""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.csv_cells import unguard_ids
from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.wording import did_you_mean, list_names
from difficulty_service.datasets.declared_names import as_names, declared_names
from difficulty_service.datasets.label_lists import is_list, one_of_each
from difficulty_service.datasets.labels import find_usual, is_text
from difficulty_service.datasets.storage import common_folder
from difficulty_service.datasets.table_columns import IMAGE_NAMES, EveryColumn, has_paths
from difficulty_service.datasets.table_files import (
    TableFile,
    find_all_tables,
    open_table_file,
    read_columns,
    read_paths,
)

ID_COLUMN, ANNOTATOR_COLUMN, LABEL_COLUMN = "sample_id", "annotator", "label"
"""Default names of columns."""


OTHER_IDS = ("id", "ids", "index")
"""Columns that are looked for the ids of samples where there is no `sample_id`, before images."""


IDS_SHOWN = 3
"""Number of ids that a message names."""


COLUMNS_SHOWN = 12


@dataclass(frozen=True)
class LabelColumns:
    """Which columns of a table hold labels.

    Attributes:
        annotators: Columns of one annotator each; names may have the wildcards `*` and `?`. None
            for a table of rows, or for all columns but the ids where it has none of these.
        annotator: Column that says who gave the label of a row.
        label: Column with that label.
        sample_id: Column with ids; None for `sample_id`, or else what holds the ids of samples.
    """

    annotators: Sequence[str] = ()
    annotator: str = ANNOTATOR_COLUMN
    label: str = LABEL_COLUMN
    sample_id: str | None = None


@dataclass(frozen=True)
class LabelTable:
    """A table of labels, of which only some columns are read.

    Attributes:
        name: What messages call it.
        read: Reads all rows of some columns.
        row_names: `file#row` of each row, which are the ids of samples of a dataset without others.
        images: Columns that name images, which are the ids of samples, too.
        notes: What was assumed to read it, one sentence each.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[list[str]], pa.Table]
    row_names: Callable[[], Iterator[str]]
    images: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def open_label_table(source: str | Path | pa.Table) -> LabelTable:
    """Opens a table in memory, a file, the files that match a glob, or those in a folder.

    Raises:
        DatasetError: There is no such file, or it cannot be read.
    """
    if isinstance(source, pa.Table):
        return LabelTable(
            "the table of labels",
            tuple(source.column_names),
            lambda names: _named(source.select(names), source.schema),
            lambda: map(str, range(len(source))),
            _of_images(source.schema, source.column_names),
        )
    files = find_all_tables(str(source))
    folder = common_folder(files)
    # Ids and labels such as 007 are text.
    tables = [
        open_table_file(file, posixpath.relpath(file.place.path, folder), EveryColumn())
        for file in files
    ]
    return label_table(str(source), tables)


def label_table(name: str, tables: Sequence[TableFile]) -> LabelTable:
    """The table of some files that are open, with the columns that all have."""
    shared = [
        name
        for name in tables[0].schema.names
        if all(name in table.schema.names for table in tables)
    ]
    notes = tuple(f"{table.name!r} {table.note}" for table in tables if table.note)
    images = _of_images(tables[0].schema, shared)
    return LabelTable(
        name, tuple(shared), partial(_read, tables), partial(_row_names, tables), images, notes
    )


def _with_paths(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if has_paths(schema.field(name).type))


def _of_images(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that name images: texts with a usual name, by priority, and images with paths."""
    texts = [name for name in find_usual(IMAGE_NAMES, names) if is_text(schema.field(name).type)]
    return (*texts, *_with_paths(schema, names))


def _read(tables: Sequence[TableFile], columns: list[str]) -> pa.Table:
    return pa.concat_tables([_read_file(table, columns) for table in tables])


def _read_file(table: TableFile, columns: list[str]) -> pa.Table:
    """Some columns of a file as text; of images, their paths."""
    images = _with_paths(table.schema, columns)
    others = [name for name in columns if name not in images]
    texts = _named(read_columns(table, others), table.schema)
    read = dict(zip(others, texts.columns, strict=True))
    read |= {name: _texts(read_paths(table, name)) for name in images}
    return pa.table({name: read[name] for name in columns})


def _named(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns as text; numbers are the names that the schema declares for them."""
    columns = {}
    for name in part.column_names:
        column, names = part.column(name), declared_names(schema, name)
        if has_paths(column.type):
            column = pc.struct_field(column, "path")
        columns[name] = _texts(as_names(column, names) if names else column)
    return pa.table(columns)


def _row_names(tables: Sequence[TableFile]) -> Iterator[str]:
    for table in tables:
        yield from (f"{table.name}#{row}" for row in range(table.num_rows))


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cells as text; whole numbers without a fraction, null where there is none."""
    column = plain_column(column)
    if is_list(column.type):
        column, _ = one_of_each(column, "the column of labels", "row {}".format, "columns")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type):
        numbers = column.cast(pa.float64()).combine_chunks()
        numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
        whole = pc.equal(numbers, pc.floor(numbers))
        text = pc.if_else(
            whole, numbers.cast(pa.int64(), safe=False).cast(pa.string()), numbers.cast(pa.string())
        )
        return pa.chunked_array([text], pa.string())
    try:
        return pc.utf8_trim_whitespace(column.cast(pa.string()))
    except pa.ArrowException as error:
        raise DatasetError(
            f"a column of type {column.type} cannot be read as text: {error}",
            "name columns of labels as ",
            Setting("columns"),
            parameter="columns",
        ) from error


def sample_numbers(
    table: LabelTable, columns: LabelColumns, used: Sequence[str], sample_ids: pa.StringArray
) -> NDArray[np.int64]:
    """Number of the sample of each row; -1 for one that is not there. Shape (rows,)."""
    if columns.sample_id is not None and columns.sample_id not in table.columns:
        raise DatasetError(
            f"{table.name} has no column {columns.sample_id!r}; "
            f"{did_you_mean(columns.sample_id, table.columns)}its columns are "
            f"{list_names(table.columns, COLUMNS_SHOWN)}",
            parameter="id_column",
        )
    usual = [ID_COLUMN, *find_usual(OTHER_IDS, table.columns), *table.images]
    tried = [columns.sample_id] if columns.sample_id else usual
    shown: list[str] = []
    for name in tried:
        if name in table.columns and name not in used:
            ids = table.read([name]).column(name).combine_chunks()
            shown = shown or ids[:IDS_SHOWN].to_pylist()
            numbers = _find(ids, sample_ids)
            if (numbers >= 0).any():
                return numbers
    if columns.sample_id is None:
        names = pa.array(list(table.row_names()), pa.string())
        numbers = _find(names, sample_ids)
        if (numbers >= 0).any():
            return numbers
        shown = shown or names[:IDS_SHOWN].to_pylist()
    raise DatasetError(
        f"no row of {table.name} is of a sample that has scores: its ids look like {shown}, those "
        f"of the samples like {sample_ids[:IDS_SHOWN].to_pylist()}",
        "name the column with the ids of the samples as ",
        Setting("id_column"),
        parameter="id_column",
    )


def _find(ids: pa.StringArray, sample_ids: pa.StringArray) -> NDArray[np.int64]:
    found = pc.index_in(unguard_ids(ids, sample_ids), value_set=sample_ids).fill_null(-1)
    return found.to_numpy(zero_copy_only=False).astype(np.int64)
