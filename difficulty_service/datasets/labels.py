"""Converts the labels of a dataset, integers or text, to class names and class indices."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.errors import DatasetError, Setting

LABEL_NAMES = ("label", "labels", "class", "target", "fine_label", "category", "y")
"""Default names of label columns, by priority."""

MAX_LABEL = 1_000_000

Describe = Callable[[int], str]
"""Function that describes where the sample of a row is, for messages."""


def index_labels(
    values: pa.ChunkedArray, names: pa.ChunkedArray | None, source: str, describe: Describe
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Class names and one class index per row.

    Texts are replaced by indices into the sorted distinct texts. Integers and booleans are kept;
    the name of such a class is its entry in `names`, or else its number.

    Args:
        values: Integers, booleans or text, possibly dictionary-encoded. Shape (samples,).
        names: Class name of each integer label, possibly null; None if there are no names. Shape
            (samples,).
        source: Description of the column, for messages.
        describe: Function that describes where a row is, for messages.

    Raises:
        DatasetError: A label is null, negative, above 1,000,000 or of another type, or one
            integer has two names.
    """
    values = decode_dictionary(values)
    _refuse_nulls(values, source, describe)
    if is_text(values.type):
        return _index_text(values)
    if not (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        raise DatasetError(
            f"{source} is of type {values.type}, but labels are integers or text",
            "name another column as ",
            Setting("label_column"),
            " or convert it",
            parameter="label_column",
        )
    labels = values.cast(pa.int64()).to_numpy()
    _refuse_out_of_range(labels, source, describe)
    class_names = [str(label) for label in range(int(labels.max(initial=-1)) + 1)]
    if names is not None:
        _name_integers(class_names, labels, decode_dictionary(names), source)
    return tuple(class_names), labels.astype(np.int32)


def decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a dictionary-encoded column; any other column unchanged."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def is_text(data_type: pa.DataType) -> bool:
    """Whether a type is one of the text types of Arrow."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(data_type) for is_kind in kinds)


def _refuse_nulls(values: pa.ChunkedArray, source: str, describe: Describe) -> None:
    if values.null_count:
        first = int(pc.index(pc.is_null(values), value=True).as_py())
        raise DatasetError(
            f"{source} is null {values.null_count} times, first at {describe(first)}",
            "every sample needs a label: remove or label them",
        )


def _index_text(values: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    values = values.cast(pa.large_string())
    class_names = sorted(pc.unique(values).to_pylist())
    labels = pc.index_in(values, value_set=pa.array(class_names, values.type))
    return tuple(class_names), labels.to_numpy().astype(np.int32)


def _refuse_out_of_range(labels: NDArray[np.int64], source: str, describe: Describe) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels > MAX_LABEL))
    if len(wrong):
        raise DatasetError(
            f"{source} holds {labels[wrong[0]]} at {describe(int(wrong[0]))}",
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
