"""Labels that come with features in memory: any integers or texts, some of them missing."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from difficulty_service.datasets.labels import is_text
from difficulty_service.errors import DatasetError
from difficulty_service.files.arrow_columns import to_arrow

MISSING = -1
"""Index of a row without a label."""


@dataclass(frozen=True)
class ClassLabels:
    """The classes of some rows.

    Attributes:
        names: Name of each class index.
        indices: Class index of each row, or MISSING; int64. Shape (rows,).
    """

    names: tuple[str, ...]
    indices: Tensor


def index_classes(values: pa.Array | pa.ChunkedArray) -> ClassLabels:
    """The distinct labels in ascending order, and the index of each row's label among them.

    The name of an integer is its value; a boolean counts as 0 or 1.

    Args:
        values: Integers, booleans, text or whole floating-point numbers, possibly
            dictionary-encoded; null or NaN where a row has no label. Shape (rows,).

    Raises:
        DatasetError: The labels are of another type, or not whole numbers.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    values = _integers_or_text(values)
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    order = pc.sort_indices(distinct)
    ranks = np.empty(len(distinct) + 1, np.int64)
    ranks[np.from_dlpack(order)] = np.arange(len(distinct))
    ranks[-1] = MISSING
    after_all = to_arrow(np.array([len(distinct)], np.int32))[0]
    positions = encoded.indices.fill_null(after_all)
    names = distinct.take(order).cast(pa.string()).to_pylist()
    return ClassLabels(tuple(names), torch.from_numpy(ranks[np.from_dlpack(positions)]))


def _integers_or_text(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_floating(kind):
        known = pc.if_else(pc.is_finite(values), values, None)
        try:
            return known.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise DatasetError(
                f"labels are numbers with fractions: {error}",
                "labels are classes, named by integers or text",
                parameter="labels",
            ) from error
    if pa.types.is_integer(kind) or is_text(kind) or pa.types.is_null(kind):
        return values
    raise DatasetError(
        f"labels are of type {kind}", "labels are integers or text", parameter="labels"
    )
