"""Reads which tags each row of a table has: from lists, from texts such as `a|b`, or one-hot."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.wording import did_you_mean, list_names
from difficulty_service.datasets.declared_names import as_names, declared_names
from difficulty_service.datasets.file_search import find_files_ending
from difficulty_service.datasets.json_tables import ENDING, is_table
from difficulty_service.datasets.label_lists import combined_by, is_list
from difficulty_service.datasets.label_tables import ID_COLUMN, OTHER_IDS
from difficulty_service.datasets.labels import find_usual, is_text
from difficulty_service.datasets.sample import TableLimits
from difficulty_service.datasets.storage import Boundary, StoredFile
from difficulty_service.datasets.table_columns import IMAGE_NAMES
from difficulty_service.datasets.table_files import TableFile, open_table_file, read_columns
from difficulty_service.datasets.tags.coco import read_coco_tags

USUAL = ("tags", "labels", "label", "classes", "categories")
"""Default names of a column of tags, by priority."""

SEPARATOR = "|"
"""What is between the tags of a cell of text."""

ID_NAMES = (ID_COLUMN, *OTHER_IDS, *IMAGE_NAMES)
"""Columns whose cells are read as text, since they may be ids."""

ENDINGS = (".parquet", ".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ENDING)
"""Tables that are read, and can be written again."""

YES = {"1", "1.0", "true", "yes"}
NO = {"0", "0.0", "false", "no"}
"""Cells of a one-hot column, in small letters."""

COLUMNS_SHOWN = 12


@dataclass(frozen=True)
class TagColumns:
    """Which columns of a table hold tags.

    Attributes:
        columns: One column of lists or texts, or several that are one-hot, each of which is a tag;
            names may have the wildcards `*` and `?`. None of them for the first of USUAL.
        separator: What is between the tags of a text; None for SEPARATOR.
        sample_id: Column with the ids of the samples; None to find it.
    """

    columns: tuple[str, ...] = ()
    separator: str | None = None
    sample_id: str | None = None


@dataclass(frozen=True)
class TagTable:
    """The tags of each row of a table.

    Attributes:
        location: Where it is, as it is called to people.
        wanted: What was to be read of it.
        columns: Columns that hold the tags.
        one_hot: Whether each of these is a tag.
        names: Name of each tag.
        starts: Place of the first tag of each row, and the number of all. Shape (rows + 1,).
        tags: Tags by their index, those of a row adjacent and each once. Shape (given,).
        images: Name of the image of each row, where the format says it; None for a table.
    """

    location: str
    wanted: TagColumns
    file: TableFile
    columns: tuple[str, ...]
    one_hot: bool
    names: tuple[str, ...]
    starts: NDArray[np.int64]
    tags: NDArray[np.int64]
    images: tuple[str, ...] | None = None

    @property
    def declared(self) -> tuple[str, ...]:
        """Names of the numbers in the lists, where the schema declares them."""
        return () if self.one_hot else declared_names(self.file.schema, self.columns[0])

    @property
    def takes_others(self) -> bool:
        """Whether a row can have a tag that none has yet."""
        return not self.one_hot and self.images is None and not self.declared


def open_tags(
    location: str,
    wanted: TagColumns,
    boundary: Boundary | None = None,
    limits: TableLimits | None = None,
) -> TagTable:
    """Reads the tags of a table.

    A row with an empty cell has no tag.

    Args:
        boundary: Root outside which nothing may be read; None for a table of the caller's own.
        limits: Limits for the table; None for one of the caller's own.

    Raises:
        DatasetError: There is no such table or column, or a cell holds something else.
    """
    files = find_files_ending(location, boundary, ENDINGS, "table")
    if len(files) != 1:
        raise DatasetError(
            f"{location!r} is {len(files)} tables, and tags are read from one",
            "name one of them",
            parameter="tags",
        )
    name = files[0].place.name
    if name.lower().endswith(ENDING) and not is_table(files[0].place):
        return _open_coco(location, files[0], wanted)
    text = (*ID_NAMES, *USUAL, *wanted.columns, *filter(None, [wanted.sample_id]))
    file = open_table_file(files[0], name, text, multiline=True, limits=limits)
    columns = _columns(file, wanted)
    cells = read_columns(file, list(columns))
    if len(columns) > 1:
        _refuse_separator(wanted, "columns of 0 and 1")
        names: Sequence[str] = columns
        rows, tags = _one_hot(file.name, cells)
    else:
        declared = declared_names(file.schema, columns[0])
        column = as_names(cells.column(0), declared) if declared else cells.column(0)
        rows, names, tags = _texts_of_lists(file.name, columns[0], column, wanted)
    starts, found = _sorted(rows, tags, file.num_rows)
    one_hot = len(columns) > 1
    return TagTable(location, wanted, file, columns, one_hot, tuple(names), starts, found)


def _sorted(
    rows: NDArray[np.int64], tags: NDArray[np.int64], num_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place of the first tag of each row, and the tags in the order of the rows, each once."""
    found = np.unique(np.stack([rows, tags], axis=1).astype(np.int64), axis=0)
    return np.searchsorted(found[:, 0], np.arange(num_rows + 1)), found[:, 1]


def _open_coco(location: str, file: StoredFile, wanted: TagColumns) -> TagTable:
    given = {"columns": wanted.columns, "id_column": wanted.sample_id}
    for option, value in given.items():
        if value:
            raise _useless(option, "tags in the format of COCO")
    _refuse_separator(wanted, "tags in the format of COCO")
    images, names, rows, tags = read_coco_tags(file.place)
    table = TableFile(file, file.place.name, pa.schema([]), len(images), None)
    starts, found = _sorted(rows, tags, len(images))
    return TagTable(
        location,
        wanted,
        table,
        (),
        one_hot=False,
        names=names,
        starts=starts,
        tags=found,
        images=tuple(images),
    )


def _refuse_separator(wanted: TagColumns, what: str) -> None:
    if wanted.separator is not None:
        raise _useless("separator", what)


def _useless(option: str, what: str) -> DatasetError:
    return DatasetError.leave_out(f"{option} does not apply to {what}", option)


def _columns(file: TableFile, wanted: TagColumns) -> tuple[str, ...]:
    names = file.schema.names
    if not wanted.columns:
        usual = find_usual(USUAL, names)
        if not usual:
            raise DatasetError(
                f"no column of {file.name!r} is called {list_names(USUAL)}; it has "
                f"{list_names(names, COLUMNS_SHOWN)}",
                "name the column of tags, or all that are one-hot, as ",
                Setting("columns"),
                parameter="columns",
            )
        return (usual[0],)
    found: dict[str, None] = {}
    for pattern in wanted.columns:
        # A blank at an end of a header is one that nobody sees.
        matching = [name for name in names if fnmatch.fnmatchcase(name.strip(), pattern.strip())]
        if not matching:
            raise DatasetError(
                f"{file.name!r} has no column {pattern!r}; {did_you_mean(pattern, names)}it has "
                f"{list_names(names, COLUMNS_SHOWN)}",
                parameter="columns",
            )
        found |= dict.fromkeys(matching)
    return tuple(found)


def _one_hot(source: str, cells: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and tags of the cells that say so."""
    rows, tags = [], []
    for tag, name in enumerate(cells.column_names):
        column = cells.column(name)
        if is_list(column.type):
            raise DatasetError(
                f"the column {name!r} of {source!r} holds lists, and is one of several",
                "name one column of lists, or columns of 0 and 1",
                parameter="columns",
            )
        texts = pc.utf8_lower(pc.utf8_trim_whitespace(plain_column(column).cast(pa.string())))
        known, where = np.unique(texts.fill_null("").to_numpy(), return_inverse=True)
        others = [text for text in known.tolist() if text not in YES | NO]
        if others:
            row = int(np.flatnonzero(known[where] == others[0])[0])
            raise DatasetError(
                f"the column {name!r} of {source!r} holds {others[0]!r} in row {row}, which is "
                "neither 0 nor 1",
                "write 1 where a sample has the tag and 0 elsewhere, or name other columns as ",
                Setting("columns"),
                parameter="columns",
            )
        has = np.flatnonzero(np.isin(known, list(YES))[where])
        rows.append(has)
        tags.append(np.full(len(has), tag))
    return np.concatenate(rows), np.concatenate(tags)


def _texts_of_lists(
    source: str, name: str, column: pa.ChunkedArray, wanted: TagColumns
) -> tuple[NDArray[np.int64], list[str], NDArray[np.int64]]:
    """Row of each tag, the names of all tags, sorted, and their indices."""
    cells = plain_column(column).combine_chunks()
    if is_list(cells.type):
        _refuse_separator(wanted, "lists")
    elif is_text(cells.type):
        separator = wanted.separator or SEPARATOR
        if not pc.any(pc.match_substring(cells, separator)).as_py():
            found = combined_by(pc.unique(cells.drop_null()).to_pylist())
            raise DatasetError(
                f"no cell of the column {name!r} of {source!r} has {separator!r} between tags",
                "name what is between them as ",
                Setting("separator", found[1] or None if found else None),
                "; `difficulty score` takes samples of one label each",
                parameter="separator",
            )
        cells = pc.split_pattern(cells, separator)
    else:
        raise DatasetError(
            f"the column {name!r} of {source!r} is of type {cells.type}, not of lists or texts",
            "name another one, or all columns that are one-hot, as ",
            Setting("columns"),
            parameter="columns",
        )
    rows = pc.list_parent_indices(cells).to_numpy(zero_copy_only=False)
    values = plain_column(pa.chunked_array([pc.list_flatten(cells)]))
    if not (is_text(values.type) or pa.types.is_integer(values.type)):
        raise DatasetError(
            f"the lists of {name!r} of {source!r} hold {values.type}, and tags are texts or "
            "integers",
            "convert them",
            parameter="columns",
        )
    texts = pc.utf8_trim_whitespace(values.cast(pa.string())).fill_null("").to_numpy()
    kept = texts != ""
    names, tags = np.unique(texts[kept].astype(str), return_inverse=True)
    return rows[kept].astype(np.int64), names.tolist(), tags.astype(np.int64)
