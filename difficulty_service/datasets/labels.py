"""Converts the labels of a dataset, integers or text, to class names and class indices."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.label_lists import combinations_warning, is_list, one_of_each
from difficulty_service.datasets.sample import UNLABELLED

LABEL_NAMES = ("label", "labels", "class", "target", "fine_label", "category", "y")
"""Default names of label columns, by priority."""

MAX_LABEL = 1_000_000

_LABEL_LIKE = re.compile(r".*[_\- ](labels?|class|target|category)", re.IGNORECASE)

Describe = Callable[[int], str]
"""Function that describes where the sample of a row is, for messages."""


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

    Texts are replaced by indices into the sorted distinct texts. Integers and booleans are kept;
    the name of such a class is its entry in `names` or `declared`, which may be shorter, or else
    its number. A row has no label where the value is null, NaN, an empty text or negative. Values
    are integers, booleans, whole floating-point numbers or text, possibly dictionary-encoded, or
    lists with one of these each. They and names have the shape (rows,); messages name the `source`
    and `describe` a row.
    """
    values = decode_dictionary(values)
    assumed = None
    if is_list(values.type):
        values, assumed = one_of_each(values, source, describe)
    values = _integers_or_text(values, source)
    missing = _missing(values)
    rows = np.flatnonzero(~missing)
    if len(values) and not len(rows):
        raise DatasetError(
            f"{source} holds no label: all {len(values):,} values are missing or negative",
            "label some samples, or name another column as ",
            Setting("label_column"),
            parameter="label_column",
        )
    unlabelled: Sequence[tuple[int, str]] = ()
    if len(rows) < len(values):
        others = np.flatnonzero(missing)
        found = values.take(pa.array(others)).to_pylist()
        unlabelled = [
            (row, f"the label is {label}" if isinstance(label, int) else "the label is missing")
            for row, label in zip(others.tolist(), found, strict=True)
        ]
        values = values.take(pa.array(rows))
        names = None if names is None else names.take(pa.array(rows))
    if is_text(values.type):
        texts = sorted(pc.unique(values).to_pylist())
        indices = pc.index_in(values, value_set=pa.array(texts, values.type)).to_numpy()
        notes = tuple(filter(None, [combinations_warning(texts, source)]))
        return IndexedLabels(tuple(texts), indices.astype(np.int32), rows, unlabelled, notes)
    _refuse_too_large(values, source, lambda position: describe(int(rows[position])))
    labels = values.cast(pa.int64()).to_numpy()
    class_names = [str(label) for label in range(int(labels.max(initial=-1)) + 1)]
    class_names[: len(declared)] = declared
    if names is not None:
        _name_integers(class_names, labels, decode_dictionary(names), source)
    notes = tuple(filter(None, [assumed]))
    return IndexedLabels(tuple(class_names), labels.astype(np.int32), rows, unlabelled, notes)


def no_labels(num_rows: int) -> IndexedLabels:
    """All rows as samples of a dataset without labels."""
    return IndexedLabels((UNLABELLED,), np.zeros(num_rows, np.int32), np.arange(num_rows))


def decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a dictionary-encoded column; any other column unchanged."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def is_text(data_type: pa.DataType) -> bool:
    """Whether a type is one of the text types of Arrow."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(data_type) for is_kind in kinds)


def _integers_or_text(values: pa.ChunkedArray, source: str) -> pa.ChunkedArray:
    """The labels as integers or text; pandas writes integers beside missing ones as floats."""
    kind = values.type
    if is_text(kind):
        return values.cast(pa.large_string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values if pa.types.is_integer(kind) else values.cast(pa.int64())
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64()).combine_chunks()
        whole = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
        if pc.all(pc.equal(whole, pc.floor(whole))).as_py() is not False:
            return pa.chunked_array([whole.cast(pa.int64(), safe=False)])
    raise DatasetError(
        f"{source} is of type {kind}, but labels are integers or text",
        "name another column as ",
        Setting("label_column"),
        " or convert it",
        parameter="label_column",
    )


def _missing(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Whether each row has no label. Shape (rows,)."""
    if is_text(values.type):
        absent = pc.equal(pc.utf8_trim_whitespace(values), "")
    else:
        absent = pc.less(values, pa.scalar(0, values.type))
    return pc.fill_null(absent, fill_value=True).to_numpy()


def _refuse_too_large(labels: pa.ChunkedArray, source: str, describe: Describe) -> None:
    # Unsigned numbers of 64 bits may be too large for the signed ones of the class indices.
    kind = pa.uint64() if pa.types.is_uint64(labels.type) else pa.int64()
    wrong = np.flatnonzero(pc.greater(labels, pa.scalar(MAX_LABEL, kind)).to_numpy())
    if len(wrong):
        raise DatasetError(
            f"{source} holds {labels[int(wrong[0])]} at {describe(int(wrong[0]))}",
            f"integer labels are class indices from 0 to {MAX_LABEL:,}: renumber them, or store "
            "them as text",
        )


def _name_integers(
    class_names: list[str], labels: NDArray[np.int64], names: pa.ChunkedArray, source: str
) -> None:
    """Writes the names of integer labels into `class_names`."""
    pairs = pa.table({"label": labels, "name": names.cast(pa.string())})
    named: dict[int, str] = {}
    distinct = pairs.group_by(["label", "name"], use_threads=False).aggregate([])
    for label, name in zip(
        *(distinct.column(c).to_pylist() for c in ("label", "name")), strict=True
    ):
        if name is not None and named.setdefault(label, name) != name:
            raise DatasetError(
                f"{source} has two names for label {label}, {named[label]!r} and {name!r}",
                "correct the column of names, or choose another ",
                Setting("label_column"),
                parameter="label_column",
            )
    for label, name in named.items():
        class_names[label] = name
