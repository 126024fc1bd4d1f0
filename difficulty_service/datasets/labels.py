"""Labels as a dataset holds them, integers or text, to class names and class indices."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.errors import DatasetError

LABEL_NAMES = ("label", "labels", "class", "target", "fine_label", "category", "y")
"""Names under which labels are looked for, in this order."""

MAX_LABEL = 1_000_000

Describe = Callable[[int], str]
"""Says where the sample of a row is, for a message."""


def index_labels(
    values: pa.ChunkedArray, names: pa.ChunkedArray | None, source: str, describe: Describe
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Class names and one class index per row.

    Text becomes indices into the sorted distinct texts. Integers and booleans stay as they are;
    a class is then called what `names` says beside it, or else by its number.

    Args:
        values: Integers, booleans or text, perhaps dictionary-encoded. Shape (samples,).
        names: The class's name beside each integer; nulls say nothing. Shape (samples,).
        source: What holds the labels, for messages.
        describe: Where a row is, for messages.

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
            f"{source} is of type {values.type}; labels are integers or text: "
            "name another column with --label-column or convert it"
        )
    labels = values.cast(pa.int64()).to_numpy()
    _refuse_out_of_range(labels, source, describe)
    class_names = [str(label) for label in range(int(labels.max(initial=-1)) + 1)]
    if names is not None:
        _name_integers(class_names, labels, decode_dictionary(names), source)
    return tuple(class_names), labels.astype(np.int32)


def decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary-encoded column as its values; any other as it is."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def is_text(data_type: pa.DataType) -> bool:
    """Whether a type is one of Arrow's kinds of text."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(data_type) for is_kind in kinds)


def _refuse_nulls(values: pa.ChunkedArray, source: str, describe: Describe) -> None:
    if values.null_count:
        first = int(pc.index(pc.is_null(values), value=True).as_py())
        raise DatasetError(
            f"{source} is null {values.null_count} times, first at {describe(first)}; "
            "every sample needs a label: remove or label them"
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
            f"{source} holds {labels[wrong[0]]} at {describe(int(wrong[0]))}; integer labels are "
            f"class indices from 0 to {MAX_LABEL:,}: renumber them, or store them as text"
        )


def _name_integers(
    class_names: list[str], labels: NDArray[np.int64], names: pa.ChunkedArray, source: str
) -> None:
    """Puts the names beside the integers into `class_names`."""
    pairs = pa.table({"label": labels, "name": names.cast(pa.string())})
    named: dict[int, str] = {}
    distinct = pairs.group_by(["label", "name"], use_threads=False).aggregate([])
    for label, name in zip(
        *(distinct.column(c).to_pylist() for c in ("label", "name")), strict=True
    ):
        if name is not None and named.setdefault(label, name) != name:
            raise DatasetError(
                f"{source} calls {label} both {named[label]!r} and {name!r} in the column of "
                "names; one class has one name: correct it, or take another --label-column"
            )
    for label, name in named.items():
        class_names[label] = name
