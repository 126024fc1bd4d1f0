"""Reads the labels that several annotators gave, from a table of columns or of rows.

A table has a column for each annotator, or a row for each label that names sample, annotator and
label. What cannot be used is counted and told, and never an error as long as some label is left.
"""

import fnmatch
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.analyses.annotators.given_labels import GivenLabels
from difficulty_service.base.csv_cells import unguard_ids
from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.wording import count_of, did_you_mean, is_or_are, list_names
from difficulty_service.datasets.declared_names import as_names, declared_names
from difficulty_service.datasets.label_lists import is_list, one_of_each
from difficulty_service.datasets.labels import find_usual
from difficulty_service.datasets.storage import common_folder
from difficulty_service.datasets.table_columns import PATH_NAMES, EveryColumn, has_paths
from difficulty_service.datasets.table_files import (
    TableFile,
    find_all_tables,
    open_table_file,
    read_columns,
    read_paths,
)

ID_COLUMN, ANNOTATOR_COLUMN, LABEL_COLUMN = "sample_id", "annotator", "label"
"""Default names of columns."""

OTHER_IDS = ("id", "ids", "index", *PATH_NAMES)
"""Columns that are looked for the ids of samples where there is no `sample_id`."""

IDS_SHOWN = 3
"""Number of ids that a message names."""

COLUMNS_SHOWN = 12

INTEGER = re.compile(r"\d{1,9}")


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
        images: Columns of images that have paths, which are the ids of samples, too.
        notes: What was assumed to read it, one sentence each.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[list[str]], pa.Table]
    row_names: Callable[[], Iterator[str]]
    images: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnnotatorLabels:
    """Labels of samples with the names of who gave them.

    Attributes:
        warnings: What was left out, one sentence each.
    """

    given: GivenLabels
    annotators: tuple[str, ...]
    warnings: tuple[str, ...]

    def with_given(self, labels: Tensor, name: str) -> "AnnotatorLabels":
        """The same with one more annotator, who gave every sample its label, (samples,)."""
        given = self.given
        number = len(self.annotators)
        samples = torch.arange(given.num_samples)
        own = torch.stack([samples, torch.full_like(samples, number), labels], dim=1)
        others = torch.stack([given.samples, given.annotators, given.classes], dim=1)
        together = GivenLabels.of(
            torch.cat([others, own]), given.num_samples, number + 1, given.num_classes
        )
        return AnnotatorLabels(together, (*self.annotators, name), self.warnings)


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
            _with_paths(source.schema, source.column_names),
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
    images = _with_paths(tables[0].schema, shared)
    return LabelTable(
        name, tuple(shared), partial(_read, tables), partial(_row_names, tables), images, notes
    )


def _with_paths(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if has_paths(schema.field(name).type))


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


def read_labels(
    table: LabelTable,
    columns: LabelColumns,
    sample_ids: pa.StringArray,
    class_names: Sequence[str],
) -> AnnotatorLabels:
    """Matches labels with samples by their ids and with classes by their names.

    A whole number that is no name of a class is the index of one, unless other names are numbers,
    or one of the labels is none of the indices.

    Raises:
        DatasetError: A column is missing, or no label is one of a class and a sample.
    """
    wide = _annotator_columns(table, columns)
    used = list(wide or (columns.annotator, columns.label))
    samples = sample_numbers(table, columns, used, sample_ids)
    cells = table.read(used)
    columns_of_labels = [cells.column(name) for name in wide or [columns.label]]
    classes = _Classes.of(class_names, columns_of_labels)
    if wide:
        found = [classes.numbers(column) for column in columns_of_labels]
        annotators: Sequence[str] = wide
        numbers = np.repeat(np.arange(len(wide)), len(samples))
        labels = np.concatenate(found)
        samples = np.tile(samples, len(wide))
    else:
        who = cells.column(columns.annotator).combine_chunks().dictionary_encode()
        annotators = who.dictionary.to_pylist()
        numbers = who.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        labels = classes.numbers(columns_of_labels[0])
    kept = (samples >= 0) & (labels >= 0) & (numbers >= 0)
    triples = np.stack([samples, numbers, labels], axis=1)[kept].astype(np.int64)
    given, repeated = _last_of_each(triples)
    warnings = [
        *table.notes,
        *classes.warnings(table.name),
        *_counted(int(((samples < 0) & (labels >= 0)).sum()), "of samples that are not there"),
        *_counted(int(((numbers < 0) & (labels >= 0)).sum()), "without an annotator"),
    ]
    if repeated:
        warnings.append(
            f"{table.name} has several labels of one annotator and sample, {repeated:,} too many; "
            "the last one counts"
        )
    if not len(given):
        raise DatasetError(
            f"{table.name} holds no label that can be used"
            + "".join(f"; {sentence}" for sentence in warnings),
            "name the columns of labels as ",
            Setting("columns"),
            parameter="columns",
        )
    present, compact = np.unique(given[:, 1], return_inverse=True)
    silent = [annotators[number] for number in range(len(annotators)) if number not in {*present}]
    if silent:
        warnings.append(f"no label of {list_names(silent)} can be used")
    given[:, 1] = compact
    return AnnotatorLabels(
        GivenLabels.of(torch.from_numpy(given), len(sample_ids), len(present), len(class_names)),
        tuple(annotators[number] for number in present),
        tuple(warnings),
    )


def _counted(number: int, what: str) -> list[str]:
    return [f"{count_of(number, 'label')} {what} {is_or_are(number)} left out"] if number else []


def _last_of_each(triples: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """One label of each sample and annotator, the last one, and how many others there are."""
    latest_first = triples[::-1]
    _, first = np.unique(latest_first[:, :2], axis=0, return_index=True)
    return latest_first[first], len(triples) - len(first)


def _annotator_columns(table: LabelTable, columns: LabelColumns) -> tuple[str, ...]:
    """The columns of one annotator each; none where a row is a label."""
    if not columns.annotators:
        if {columns.annotator, columns.label} <= {*table.columns}:
            return ()
        if ID_COLUMN not in table.columns and columns.sample_id is None:
            raise DatasetError(
                f"{table.name} has neither columns {columns.annotator!r} and {columns.label!r} nor "
                f"{ID_COLUMN!r} beside one column for each annotator; its columns are "
                f"{list_names(table.columns, COLUMNS_SHOWN)}",
                "name those of the annotators as ",
                Setting("columns"),
                parameter="columns",
            )
        ids = columns.sample_id or ID_COLUMN
        return tuple(name for name in table.columns if name not in (ids, *table.images))
    found: dict[str, None] = {}
    for pattern in columns.annotators:
        matching = [name for name in table.columns if fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            raise DatasetError(
                f"{table.name} has no column {pattern!r}; {did_you_mean(pattern, table.columns)}"
                f"its columns are {list_names(table.columns, COLUMNS_SHOWN)}",
                parameter="columns",
            )
        found |= dict.fromkeys(matching)
    return tuple(found)


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


@dataclass(frozen=True)
class _Classes:
    """Class index of each text of a label, and how often others were met."""

    index: Mapping[str, int]
    are_names: bool
    takes_places: bool
    outside: Counter[str]

    @classmethod
    def of(cls, names: Sequence[str], columns: Sequence[pa.ChunkedArray]) -> Self:
        """The classes of a dataset, for all columns of labels together."""
        index = {name: place for place, name in enumerate(names)}
        texts = {_whole(text) for column in columns for text in pc.unique(column).to_pylist()}
        numbers = [int(text) for text in texts if INTEGER.fullmatch(text)]
        are_places = max(numbers, default=0) < len(names)
        are_names = any(map(INTEGER.fullmatch, names))
        return cls(index, are_names, are_places and not are_names, Counter())

    def numbers(self, texts: pa.ChunkedArray) -> NDArray[np.int64]:
        """Class index of each label; -1 where it is missing or of no class. Shape (labels,)."""
        encoded = texts.combine_chunks().dictionary_encode()
        places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        distinct = encoded.dictionary.to_pylist()
        known = np.array([*(self._number(text) for text in distinct), -1], np.int64)
        number = np.bincount(places[places >= 0], minlength=len(distinct))
        for text, count, label in zip(distinct, number.tolist(), known, strict=False):
            if label < 0 and not _is_missing(text):
                self.outside[text] += count
        return known[places]

    def _number(self, text: str) -> int:
        for name in (text, _whole(text)):
            if name in self.index:
                return self.index[name]
        number = _whole(text)
        return int(number) if self.takes_places and INTEGER.fullmatch(number) else -1

    def warnings(self, where: str) -> list[str]:
        """A sentence about labels of other classes."""
        if not self.outside:
            return []
        names = [f"{text} ({number:,})" for text, number in self.outside.most_common()]
        sentence = (
            f"{count_of(self.outside.total(), 'label')} of {where} of no class of the dataset "
            f"{is_or_are(self.outside.total())} left out: {list_names(names)}"
        )
        if not self.are_names and not self.takes_places:
            number = len(self.index)
            sentence += f"; numbers are places of classes only where all are below {number:,}"
        return [sentence]


def _whole(text: str | None) -> str:
    """A whole number as pandas writes it beside missing ones, without its point."""
    return re.sub(r"^(\d+)\.0+$", r"\1", text or "")


def _is_missing(text: str) -> bool:
    """Whether a text stands for no label, as a negative number does."""
    return not text or re.fullmatch(r"-\d+(\.0+)?", text) is not None
