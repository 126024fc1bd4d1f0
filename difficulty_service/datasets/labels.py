"""Converts the labels of a dataset, integers or text, to class names and class indices.

What a label is is decided here for every source: tables, archives, features and what a program
holds. The classes are those that occur, and a label is its own name unless another one is declared
for it. A label is text as it is written; where every label reads as the same whole number that is
written, they are integers. Negative integers say that there is no label.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.tables import to_arrow
from difficulty_service.datasets.label_lists import (
    combinations_warning,
    is_list,
    missing_names_warning,
    one_of_each,
    similar_names_warning,
)
from difficulty_service.datasets.sample import UNLABELLED

LABEL_NAMES = ("label", "labels", "class", "target", "fine_label", "category", "y", "labelname")
"""Default names of label columns, by priority."""

CLEANED = frozenset(("sample_id", "label", "original_label", "mark"))
"""Columns of the lists that `difficulty clean` writes, with cells that no spreadsheet runs."""

MISSING = -1
"""Index of a row without a label."""

_LABEL_LIKE = re.compile(r".*[_\- ](labels?|class|target|category)", re.IGNORECASE)

_INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")
_WHOLE = re.compile(r"(0|-?[1-9]\d{0,17})[.,]0+")  # as pandas writes integers beside missing ones
_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)")
_FRACTION = re.compile(r"[.,]\d*[1-9]")
_FEWEST_PER_FRACTION = 2

Describe = Callable[[int], str]
"""Function that describes where the sample of a row is, for messages."""


@dataclass(frozen=True)
class DistinctLabels:
    """The distinct labels of some rows, all integers or all text.

    Attributes:
        keys: Each distinct label, ascending.
        indices: Index of each row's label among the keys; MISSING without one. Shape (rows,).
        reasons: Why a row has no label, by the number of its cell among the distinct ones.
        cells: Number of each row's cell among the distinct ones. Shape (rows,).
        notes: What was assumed, one sentence each.
    """

    keys: Sequence[int | str]
    indices: NDArray[np.int64]
    reasons: Sequence[str]
    cells: NDArray[np.int64]
    notes: tuple[str, ...] = ()

    @property
    def are_numbers(self) -> bool:
        """Whether the labels are integers."""
        return not any(isinstance(key, str) for key in self.keys)

    def why_missing(self, row: int) -> str:
        """Why a row has no label."""
        return self.reasons[int(self.cells[row])]


@dataclass(frozen=True)
class IndexedLabels:
    """The labels of the rows that have one, and the other rows with the reason, both ascending.

    Attributes:
        notes: What was assumed, and what is probably not meant, one sentence each.
    """

    class_names: tuple[str, ...]
    labels: NDArray[np.int32]
    rows: NDArray[np.int64]
    unlabelled: Sequence[tuple[int, str]] = ()
    notes: tuple[str, ...] = ()


def find_usual(usual: Iterable[str], names: Sequence[str]) -> list[str]:
    """The names that are usual ones, by priority, whether written `label`, `Label` or ` LABEL`."""
    folded = {fold(name): name for name in reversed(names)}
    return [name if name in names else folded[fold(name)] for name in usual if fold(name) in folded]


def fold(name: str) -> str:
    """The name of a column without spaces around it, in lower case."""
    return name.strip().casefold()


def label_like(names: Iterable[str]) -> list[str]:
    """The names that a label column may have: the default ones by priority, then the others."""
    names = list(names)
    usual = find_usual(LABEL_NAMES, names)
    return usual + [name for name in names if name not in usual and _LABEL_LIKE.fullmatch(name)]


def several_labels_warning(used: str, others: Sequence[str]) -> str:
    """The sentence that names the label columns that are not used."""
    one = len(others) == 1
    return (
        f"labels are read from {used!r}; {', '.join(map(repr, others))} "
        f"{'looks' if one else 'look'} like labels too"
    )


def index_labels(
    values: pa.ChunkedArray,
    names: pa.ChunkedArray | None,
    source: str,
    describe: Describe,
    declared: Sequence[str] = (),
) -> IndexedLabels:
    """Class names, and the class index of every row that has a label.

    The classes are the distinct labels, ascending. The name of an integer is its entry in `names`
    or `declared`, or else its number; all `declared` names are classes, in their order, and may be
    fewer than there are. Values and names have the shape (rows,); messages name the `source` and
    `describe` a row. For what a label is, and when there is none, see `distinct_labels`.
    """
    is_named = names is not None or len(declared) > 0
    found = distinct_labels(values, source, describe, is_named=is_named)
    rows = np.flatnonzero(found.indices >= 0)
    if len(values) and not len(rows):
        raise DatasetError(
            f"{source} holds no label: all {len(values):,} values are missing or negative",
            "label some samples, name another column as ",
            Setting("label_column"),
            ", or score without labels by ",
            Setting("unlabelled", value=True),
            parameter="label_column",
        )
    others = np.flatnonzero(found.indices < 0).tolist()
    if names is not None:
        names = names.take(pa.array(rows))
    class_names, positions = name_classes(found, found.indices[rows], names, declared, source)
    combined = None if found.are_numbers else combinations_warning(class_names, source)
    absent = None if found.are_numbers or declared else missing_names_warning(class_names, source)
    notes = (combined, similar_names_warning(class_names, source), absent)
    return IndexedLabels(
        class_names,
        positions.astype(np.int32),
        rows,
        [(row, found.why_missing(row)) for row in others],
        (*found.notes, *filter(None, notes)),
    )


def distinct_labels(
    values: pa.ChunkedArray,
    source: str,
    describe: Describe,
    parameter: str = "label_column",
    *,
    is_named: bool = False,
) -> DistinctLabels:
    """The distinct labels, and which one each row has.

    Values are integers, booleans, whole floating-point numbers or text, possibly
    dictionary-encoded, or lists with one of these each. A row has no label where its value is null,
    NaN, infinite, blank or negative. Where -1 and 1 are all there is and neither is named, they are
    two classes.

    Args:
        source: What messages call the values.
        describe: Says where a row is.
        parameter: The argument that chose the values, for remedies.
        is_named: Whether integers have names elsewhere.

    Raises:
        DatasetError: The values are of another type, or a list has several labels.
    """
    values = plain_column(values)
    assumed = None
    if is_list(values.type):
        values, assumed = one_of_each(values, source, describe, parameter)
        values = plain_column(values)
    values = _integers_or_text(values, source, parameter)
    encoded = values.combine_chunks().dictionary_encode()
    cells = encoded.dictionary.to_pylist()
    after_all = to_arrow(np.array([len(cells)], np.int32))[0]  # what is no array loads pandas
    places = np.from_dlpack(encoded.indices.fill_null(after_all)).astype(np.int64)
    keys, signed = _keys(cells, is_named=is_named)
    _refuse_measurements(
        [key for key in keys if isinstance(key, str)], len(values), source, parameter
    )
    distinct: list[int | str] = sorted({key for key in keys if key is not None})
    rank = {key: place for place, key in enumerate(distinct)}
    ranks = np.array([*(MISSING if key is None else rank[key] for key in keys), MISSING], np.int64)
    reasons = [
        f"the label is {str(cell).strip()}" if str(cell).strip() else "the label is missing"
        for cell in cells
    ]
    if signed:
        assumed = f"{source} has the labels -1 and 1 alone, which are read as two classes"
    notes = tuple(filter(None, [assumed]))
    reasons.append("the label is missing")
    return DistinctLabels(distinct, ranks[places], reasons, places, notes)


def name_classes(
    found: DistinctLabels,
    indices: NDArray[np.int64],
    names: pa.ChunkedArray | None,
    declared: Sequence[str],
    source: str,
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The names of the classes, and the class of each labelled row.

    Args:
        found: The distinct labels.
        indices: Those of the rows with a label. Shape (labelled,).
        names: Names of integers beside them, (labelled,); None where there are none.
        declared: Names of 0, 1, 2, ...
        source: What messages call the labels.

    Raises:
        DatasetError: An integer has two names.
    """
    if not found.are_numbers:
        return tuple(map(str, found.keys)), indices
    keys = list(map(int, found.keys))
    further = [key for key in keys if not 0 <= key < len(declared)]
    class_of = {key: len(declared) + place for place, key in enumerate(further)}
    classes = np.array([class_of.get(key, key) for key in keys], np.int64)[indices]
    class_names = [*declared, *map(str, further)]
    if names is not None:
        for index, name in _names_of(indices, plain_column(names), keys, source).items():
            class_names[class_of.get(keys[index], keys[index])] = name
    return tuple(class_names), classes


def numbers_of_classes(class_names: Sequence[str]) -> list[int]:
    """The integer that stands for each class elsewhere: its name where all are integers.

    Otherwise it is the place of the class.
    """
    if all(map(_INTEGER.fullmatch, class_names)):
        return list(map(int, class_names))
    return list(range(len(class_names)))


def read_otherwise(labels: Sequence[str]) -> list[str]:
    """The names of classes, sorted, that become others where these labels are read as text."""
    column = pa.chunked_array([pa.array(labels, pa.large_string())])
    try:
        found = distinct_labels(column, "the label", "row {}".format)
    except DatasetError:  # numbers with fractions
        return sorted(set(labels))
    pairs = set(zip(labels, found.indices.tolist(), strict=True))
    return sorted(
        name for name, index in pairs if index == MISSING or str(found.keys[index]) != name
    )


def no_labels(num_rows: int) -> IndexedLabels:
    """All rows as samples of a dataset without labels."""
    return IndexedLabels((UNLABELLED,), np.zeros(num_rows, np.int32), np.arange(num_rows))


def is_text(data_type: pa.DataType) -> bool:
    """Whether a type is one of the text types of Arrow."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(data_type) for is_kind in kinds)


def _integers_or_text(values: pa.ChunkedArray, source: str, parameter: str) -> pa.ChunkedArray:
    """The labels as integers or text; pandas writes integers beside missing ones as floats."""
    kind = values.type
    if is_text(kind):
        return values.cast(pa.large_string())
    if pa.types.is_integer(kind):
        return values
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values.cast(pa.int64())
    try:
        if pa.types.is_floating(kind):
            numbers = values.cast(pa.float64()).combine_chunks()
            finite = pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))
            return pa.chunked_array([finite.cast(pa.int64())])
        if pa.types.is_decimal(kind):
            return values.cast(pa.int64())
    except pa.ArrowInvalid:
        pass  # a number has a fraction
    raise DatasetError(
        f"{source} is of type {kind}, but labels are integers or text",
        *_another(parameter),
        "convert them, or leave out what is no class",
        parameter=parameter,
    )


def _another(parameter: str) -> tuple[str | Setting, ...]:
    """The begin of a remedy where a column can be chosen."""
    if parameter != "label_column":
        return ()
    return ("name another column as ", Setting(parameter), ", or ")


Keys = Sequence[int | None] | Sequence[str | None]


def _keys(cells: Sequence[int] | Sequence[str], *, is_named: bool) -> tuple[Keys, bool]:
    """The label of each distinct cell, None for none; and whether they are -1 and 1."""
    texts = [str(cell).strip() for cell in cells]
    written = [text for text in texts if text]
    if all(map(_INTEGER.fullmatch, written)) or not any(isinstance(cell, str) for cell in cells):
        numbers = [int(text) if text else None for text in texts]
    elif all(map(_WHOLE.fullmatch, written)):
        numbers = [int(re.split("[.,]", text)[0]) if text else None for text in texts]
    else:
        # Beside names, a negative number is no name.
        are_names = not any(_NUMBER.fullmatch(text) for text in written if text[0] != "-")
        absent = [not text or (are_names and _is_negative(text)) for text in texts]
        return [
            None if no_label else str(cell) for cell, no_label in zip(cells, absent, strict=True)
        ], False
    if not is_named and {*numbers} - {None} == {-1, 1}:
        return numbers, True
    return [None if number is None or number < 0 else number for number in numbers], False


def _is_negative(text: str) -> bool:
    return text.startswith("-") and _INTEGER.fullmatch(text) is not None


def _refuse_measurements(labels: Sequence[str], num_rows: int, source: str, parameter: str) -> None:
    """Refuses text that is numbers with fractions, most of which no other row has."""
    if (
        labels
        and all(map(_NUMBER.fullmatch, map(str.strip, labels)))
        and any(map(_FRACTION.search, labels))
        and num_rows < _FEWEST_PER_FRACTION * len(labels)
    ):
        raise DatasetError(
            f"{source} holds numbers with fractions that differ from row to row, such as "
            f"{labels[0].strip()}, but labels are integers or text",
            *_another(parameter),
            "write a label for each range of numbers",
            parameter=parameter,
        )


def _names_of(
    indices: NDArray[np.int64], names: pa.ChunkedArray, keys: Sequence[int], source: str
) -> Mapping[int, str]:
    """The names of integer labels, by the number of each among the distinct ones."""
    pairs = pa.table({"label": indices, "name": names.cast(pa.string())})
    named: dict[int, str] = {}
    distinct = pairs.group_by(["label", "name"], use_threads=False).aggregate([])
    for label, name in zip(
        *(distinct.column(c).to_pylist() for c in ("label", "name")), strict=True
    ):
        if name is not None and named.setdefault(label, name) != name:
            raise DatasetError(
                f"{source} has two names for label {keys[label]}, {named[label]!r} and {name!r}",
                "correct the column of names, or choose another ",
                Setting("label_column"),
                parameter="label_column",
            )
    return named
