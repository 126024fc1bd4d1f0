"""Datasets in Parquet, CSV or JSON tables with encoded images or paths, and labels."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.declared_names import declared_names, number_alike
from difficulty_service.datasets.image_openers import cell_opener, embedded, text_opener
from difficulty_service.datasets.labels import index_labels, no_labels, several_labels_warning
from difficulty_service.datasets.listing import Listing, build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.splits import match_split, split_folders
from difficulty_service.datasets.storage import common_folder
from difficulty_service.datasets.table_columns import (
    IMAGE_NAMES,
    TableColumns,
    TextColumns,
    are_ids,
    choose_columns,
    columns_asked_for,
    one_hot_labels,
    one_hot_note,
    or_texts,
    path_columns,
    sample_ids_of,
)
from difficulty_service.datasets.table_files import (
    TableFile,
    find_tables,
    open_table_file,
    read_cells,
    read_columns,
    read_paths,
    require_columns,
    require_rows,
)
from difficulty_service.datasets.table_images import ImageFolder, find_image_folder

_MOST_SPLITS = 100  # values of a column that may be splits


@dataclass(frozen=True)
class TableRows:
    """The rows of the samples in several files, numbered consecutively and ascending.

    `starts` has the number of rows before each file.
    """

    tables: tuple[TableFile, ...]
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]

    def describe(self, position: int) -> str:
        """`file#row` of a sample."""
        row = int(self.rows[position])
        table = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"{self.tables[table].name}#{row - int(self.starts[table])}"

    def names(self) -> Iterator[str]:
        """`file#row` of every sample, in order."""
        for table, rows in self.split_by_file(np.arange(len(self.rows))):
            yield from (f"{table.name}#{row}" for row in rows.tolist())

    def split_by_file(
        self, positions: NDArray[np.int64]
    ) -> Iterator[tuple[TableFile, NDArray[np.int64]]]:
        """Each file with its rows that belong to ascending positions, unless there are none."""
        rows = self.rows[positions]
        for table, start in zip(self.tables, self.starts.tolist(), strict=True):
            first, last = np.searchsorted(rows, [start, start + table.num_rows])
            if last > first:
                yield table, rows[first:last] - start


@dataclass(frozen=True)
class ListedTable:
    """The samples of a table, before any limit.

    Attributes:
        folders: Where the images of each file are, by its name.
        label_column: Column of the labels; None where they are ignored.
        is_named: Whether the labels are numbers whose names are elsewhere.
        unlabelled: Number of each row of the split that has no label, with the reason.
    """

    listing: Listing
    rows: TableRows
    image_column: str
    folders: Mapping[str, ImageFolder]
    label_column: str | None = None
    is_named: bool = False
    unlabelled: Sequence[tuple[int, str]] = ()


def open_table(location: str, options: DatasetOptions) -> Dataset:
    """Opens one table: a file, the files that match a glob, or those in a folder, sorted."""
    return build_table(list_table(location, options), location, options)


def build_table(table: ListedTable, location: str, options: DatasetOptions) -> Dataset:
    """Makes a dataset of a listed table; arguments and errors as for `open_table`."""
    folders = None if options.modality == "text" else table.folders
    open_at = partial(_open_at, table.rows, table.image_column, folders)
    return build_dataset(location, options, table.listing, open_at, table.rows.describe)


def list_table(location: str, options: DatasetOptions, also: Sequence[str] = ()) -> ListedTable:
    """Lists the rows of a table that have a label, or all if labels are ignored.

    The others are listed as skipped.

    Args:
        also: Further columns that are read of it, and that each of its files has; they are no
            labels.
    """
    check_options(options, "a table", unused=())
    tables, split = _open_files(location, options)
    if options.limits is not None:
        require_rows(sum(table.num_rows for table in tables), options.limits, repr(location))
    options = replace(options, split=split)
    schema = pa.schema([field for field in tables[0].schema if field.name not in also])
    columns = choose_columns(schema, options, repr(tables[0].name), partial(_read_all, tables))
    names = columns.of_labels()
    parts = [
        read_columns(table, names) if names else pa.table({"row": np.arange(table.num_rows)})
        for table in tables
    ]
    for table in tables:
        require_columns(table, [columns.image, *also])
    parts, declared = _number_alike(parts, tables, columns)
    texts = _concat(parts)
    if not texts.num_rows:
        raise DatasetError(f"{location!r} has no rows", "expected one row per sample")
    keep = _rows_of_split(texts, options.split, location)
    texts = texts.take(pa.array(keep))
    lengths = np.array([table.num_rows for table in tables], dtype=np.int64)
    rows = TableRows(tuple(tables), np.cumsum(lengths) - lengths, keep)
    labels = no_labels(len(keep))
    if columns.label is not None:
        labels = index_labels(
            texts.column(columns.label),
            texts.column(columns.label_name) if columns.label_name else None,
            f"label column {columns.label!r}",
            rows.describe,
            declared,
        )
    elif columns.one_hot:
        columns_of_labels = one_hot_labels(texts, columns.one_hot)
        labels = index_labels(columns_of_labels, None, "the label", rows.describe)
    ids = _sample_ids(rows, texts, columns)
    unlabelled = [(ids[row], reason) for row, reason in labels.unlabelled]
    if unlabelled:
        ids = [ids[row] for row in labels.rows.tolist()]
    others = columns.other_labels
    is_image = options.modality == "image"
    remedy = or_texts(schema.names) if options.image_column is None else ()
    folders = {t.name: find_image_folder(t, columns.image, remedy) for t in tables if is_image}
    warnings = [f"{table.name!r} {table.note}" for table in tables if table.note]
    warnings += [f"{name!r} {folder.note}" for name, folder in folders.items() if folder.note]
    warnings += labels.notes
    if columns.one_hot:
        warnings.append(one_hot_note(repr(tables[0].name), columns.one_hot))
    if columns.label is not None and others:
        warnings.append(several_labels_warning(columns.label, others))
    warnings += _splits_warning(tables) if split is None else []
    listing = Listing(
        labels.class_names,
        ids,
        labels.labels,
        np.zeros(len(labels.labels), dtype=np.int64),
        (
            *((table.name, table.file.size, table.num_rows) for table in tables),
            *columns_asked_for(options),
        ),
        skipped=unlabelled,
        warnings=tuple(warnings),
        containers=[table.file.place for table in tables],
    )
    # The other columns are no longer needed.
    kept = [*dict.fromkeys((columns.image, *also))]
    images = tuple(
        replace(table, rows=None if table.rows is None else table.rows.select(kept))
        for table in tables
    )
    rows = TableRows(images, rows.starts, keep[labels.rows])
    return ListedTable(
        listing,
        rows,
        columns.image,
        folders,
        columns.label,
        columns.label_name is not None or bool(declared),
        [(int(keep[row]), reason) for row, reason in labels.unlabelled],
    )


def _read_all(tables: Sequence[TableFile], names: list[str]) -> pa.Table:
    """Some columns of all files."""
    return _concat([read_columns(table, names) for table in tables])


def _number_alike(
    parts: list[pa.Table], tables: Sequence[TableFile], columns: TableColumns
) -> tuple[list[pa.Table], tuple[str, ...]]:
    """The columns of each file with labels that mean the same in all, and their declared names."""
    label = columns.label
    if label is None:
        return parts, ()
    names = [declared_names(table.schema, label) for table in tables]
    if columns.label_name is not None and len(set(names)) > 1:
        return parts, ()  # the column says which class a number is
    given = [part.column(label) for part in parts]
    numbered, declared = number_alike(given, names, [table.name for table in tables])
    return [
        part.set_column(part.column_names.index(label), label, column)
        for part, column in zip(parts, numbered, strict=True)
    ], declared


def _sample_ids(rows: TableRows, texts: pa.Table, columns: TableColumns) -> list[str]:
    """The id column, or else the first column of unique paths, or else `file#row`."""
    if columns.sample_id is None:
        usable = [path_columns(table.schema, columns.image) for table in rows.tables]
        for name in usable[0]:
            if not all(name in names for names in usable):
                continue
            chunks = [part for table in rows.tables for part in read_paths(table, name).chunks]
            paths = pa.chunked_array(chunks, pa.large_string()).take(pa.array(rows.rows))
            if len(paths) and are_ids(paths) and embedded(str(paths[0])) is None:
                return list(paths.to_pylist())
    return sample_ids_of(texts, columns, rows.names(), rows.describe)


def _open_files(location: str, options: DatasetOptions) -> tuple[list[TableFile], str | None]:
    """The files of the split, and the split that is still to be chosen in them by a column."""
    found = find_tables(location, options.split, options.boundary)
    folder = common_folder(found.files)
    special = (options.image_column, options.text_column, options.id_column, options.label_column)
    text_columns = TextColumns((*special, "split", *IMAGE_NAMES))
    tables = [
        open_table_file(
            file,
            posixpath.relpath(file.place.path, folder),
            text_columns,
            multiline=options.text_column is not None,
            limits=options.limits,
        )
        for file in found.files
    ]
    is_whole = found.split and found.common and match_split([found.common], found.split)
    if is_whole and "split" not in tables[0].schema.names:
        return tables, None
    return tables, found.split


def _concat(parts: list[pa.Table]) -> pa.Table:
    """Concatenates columns of several files, whose types may differ in width or encoding."""
    plain = [
        pa.table({name: plain_column(part.column(name)) for name in part.schema.names})
        for part in parts
    ]
    try:
        return pa.concat_tables(plain, promote_options="permissive")
    except pa.ArrowException as error:
        raise DatasetError(f"a column has different types in the files: {error}") from error


def _splits_warning(tables: Sequence[TableFile]) -> list[str]:
    """A warning where rows of several splits are read together, as a column says."""
    columns = [
        plain_column(read_columns(table, ["split"]).column("split"))
        for table in tables
        if "split" in table.schema.names
    ]
    texts = [column for column in columns if not pa.types.is_nested(column.type)]
    values = {value for column in texts for value in pc.unique(column).to_pylist()}
    if len(values) > _MOST_SPLITS:
        return []
    splits = split_folders(value for value in values if isinstance(value, str))
    if len(set(splits.values())) <= 1:
        return []
    return [
        f"the rows of {list_names([*map(repr, splits)])} in column 'split' are read together; "
        "choose a split to read one of them"
    ]


def _rows_of_split(texts: pa.Table, split: str | None, location: str) -> NDArray[np.int64]:
    if split is None:
        return np.arange(texts.num_rows)
    names = texts.column("split").cast(pa.string())
    splits = sorted(name for name in pc.unique(names).to_pylist() if name is not None)
    chosen = match_split(splits, split)
    if chosen is None:
        raise DatasetError(
            f"{location!r} has no row of split {split!r}",
            f"there are {splits[:20]}",
            parameter="split",
        )
    return np.flatnonzero(pc.fill_null(pc.equal(names, chosen), fill_value=False).to_numpy())


def _open_at(
    rows: TableRows,
    column: str,
    folders: Mapping[str, ImageFolder] | None,
    positions: NDArray[np.int64],
) -> Iterator[ImageOpener]:
    for table, numbers in rows.split_by_file(positions):
        cells = read_cells(table, column, numbers)
        if folders is None:
            yield from map(text_opener, cells)
            continue
        folder = folders[table.name]
        for cell in cells:
            place = folder.place_of(cell)
            yield cell_opener(folder.complete(cell), place, is_base64=table.is_json)
