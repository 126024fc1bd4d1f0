"""Reads the labels that several annotators gave, from a table of columns or of rows.

A table has a column for each annotator, or a row for each label that names sample, annotator and
label. What cannot be used is counted and told, and never an error as long as some label is left.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.analyses.annotators.given_labels import GivenLabels
from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.wording import count_of, did_you_mean, is_or_are, list_names
from difficulty_service.datasets.label_tables import (
    ANNOTATOR_COLUMN,
    COLUMNS_SHOWN,
    ID_COLUMN,
    LABEL_COLUMN,
    LabelColumns,
    LabelTable,
    sample_numbers,
)

INTEGER = re.compile(r"\d{1,9}")


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
        names = cells.column(columns.annotator).combine_chunks()
        who = pc.if_else(pc.not_equal(names, ""), names, None).dictionary_encode()
        annotators = who.dictionary.to_pylist()
        numbers = who.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        labels = classes.numbers(columns_of_labels[0])
    kept = (samples >= 0) & (labels >= 0) & (numbers >= 0)
    triples = np.stack([samples, numbers, labels], axis=1)[kept].astype(np.int64)
    given, repeated = _last_of_each(triples)
    warnings = [
        *table.notes,
        *classes.warnings(table.name),
        *_counted(int(((samples < 0) & (labels >= 0)).sum()), "of unknown samples"),
        *_counted(int(((numbers < 0) & (labels >= 0)).sum()), "without an annotator"),
    ]
    if repeated:
        warnings.append(
            f"{table.name} has {repeated:,} labels that repeat an annotator and a sample; the last "
            "one counts"
        )
    if not len(given):
        raise DatasetError(
            f"{table.name} holds no usable label"
            + "".join(f"; {sentence}" for sentence in warnings),
            "name the columns of labels as ",
            Setting("columns"),
            parameter="columns",
        )
    present, compact = np.unique(given[:, 1], return_inverse=True)
    silent = [annotators[number] for number in range(len(annotators)) if number not in {*present}]
    if silent:
        warnings.append(f"no label of {list_names(silent)} is usable")
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
    _require_row_columns(table, columns)
    if not columns.annotators:
        if {columns.annotator, columns.label} <= {*table.columns}:
            return ()
        if ID_COLUMN not in table.columns and columns.sample_id is None:
            raise DatasetError(
                f"{table.name} has neither columns {columns.annotator!r} and {columns.label!r} nor "
                f"{ID_COLUMN!r} beside one column for each annotator; its columns are "
                f"{list_names(table.columns, COLUMNS_SHOWN)}",
                "name the columns of the annotators as ",
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


def _require_row_columns(table: LabelTable, columns: LabelColumns) -> None:
    """Raises DatasetError where a column is named for rows of one label each, which there are not.

    Otherwise all columns would be taken for annotators.
    """
    named = {
        "annotator_column": (columns.annotator, ANNOTATOR_COLUMN),
        "label_column": (columns.label, LABEL_COLUMN),
    }
    if all(name == usual for name, usual in named.values()):
        return
    for parameter, (name, usual) in named.items():
        if columns.annotators and name != usual:
            raise DatasetError(
                f"column {name!r} does not apply to columns of one annotator each",
                "leave it out, or ",
                Setting("columns"),
                parameter=parameter,
            )
        if not columns.annotators and name not in table.columns:
            raise DatasetError(
                f"{table.name} has no column {name!r}; {did_you_mean(name, table.columns)}"
                f"its columns are {list_names(table.columns, COLUMNS_SHOWN)}",
                "name that of a row as ",
                Setting(parameter),
                parameter=parameter,
            )


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
            sentence += f"; numbers are class indices only if all are below {number:,}"
        return [sentence]


def _whole(text: str | None) -> str:
    """A whole number as pandas writes it beside missing ones, without its point."""
    return re.sub(r"^(\d+)\.0+$", r"\1", text or "")


def _is_missing(text: str) -> bool:
    """Whether a text stands for no label, as a negative number does."""
    return not text or re.fullmatch(r"-\d+(\.0+)?", text) is not None
