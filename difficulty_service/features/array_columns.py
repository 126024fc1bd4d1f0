"""Columns and arrays of numbers, texts and labels: from Arrow to NumPy and torch, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.tables import strings_to_arrow, to_arrow, to_numpy
from difficulty_service.datasets.label_lists import is_list, similar_names_warning
from difficulty_service.datasets.labels import MISSING as MISSING
from difficulty_service.datasets.labels import distinct_labels, name_classes


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A tensor on the memory of an array, which may be read-only and must not be written to."""
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            remedy = "pass a matrix of real numbers, one row for each sample"
            if array.dtype.kind == "U":
                remedy += '; pass texts to score_dataset(texts, labels, modality="text")'
            raise DatasetError(
                f"the features are an array of {array.dtype}",
                remedy,
                parameter="features",
            ) from error
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    tensor: Tensor = from_dlpack(array)  # unlike from_numpy, without a warning if read-only
    return tensor


def column_of_array(array: NDArray[Any]) -> pa.Array | None:
    """A one-dimensional array of numbers or text as a column; None for any other array."""
    if array.ndim == 2 and array.shape[1] == 1:  # noqa: PLR2004
        array = array[:, 0]
    if array.dtype.kind == "S":  # bytes, as of h5py
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError:
            return None
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        return None
    if array.dtype.kind == "U":
        return strings_to_arrow(array.tolist())
    number = np.dtype(np.int8) if array.dtype.kind == "b" else array.dtype.newbyteorder("=")
    if array.dtype.kind == "f" and array.dtype.itemsize not in {4, 8}:
        number = np.dtype(np.float64)  # Arrow knows neither halves as numbers nor more than 64 bits
    return to_arrow(array.astype(number, copy=False))


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's integers or floating-point numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_vector(kind: pa.DataType) -> bool:
    """Whether the cells of a column are lists of numbers, of fixed or variable length."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in kinds) and is_number(kind.value_type)


def matrix_of_vectors(column: pa.Array | pa.ChunkedArray, name: str) -> NDArray[np.generic]:
    """The vectors of a column, on the memory of the column if no number is null.

    They must have the same length; a null list becomes a row of NaN. Shape (rows, dim).
    """
    if not is_vector(column.type):
        raise DatasetError(
            f"{name} is of type {column.type}, but features are lists of numbers",
            parameter="features",
        )
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    lengths = pc.list_value_length(column).drop_null()
    bounds = pc.min_max(lengths).as_py()
    if bounds["min"] != bounds["max"]:
        raise DatasetError(
            f"the vectors of {name} have {bounds['min']} to {bounds['max']} numbers",
            "all must have the same number of dimensions",
            parameter="features",
        )
    vectors = column.drop_null()
    numbers = vectors.flatten()
    values = numbers_of(numbers).reshape(len(vectors), bounds["max"] or 0)
    if not column.null_count:
        return values
    matrix = np.full((len(column), values.shape[1]), np.nan, np.result_type(values, np.float16))
    matrix[np.from_dlpack(column.is_valid().cast(pa.uint8())).astype(bool)] = values
    return matrix


def matrix_of_columns(table: pa.Table) -> NDArray[np.generic]:
    """A matrix with a column for each column of a table of numbers. Shape (rows, columns)."""
    others = [field.name for field in table.schema if not is_number(field.type)]
    if others or not table.num_columns:
        raise DatasetError(
            f"columns {others[:5]} of the features are not numbers" if others else "no columns",
            "drop or convert them",
            parameter="features",
        )
    return np.stack([numbers_of(column.combine_chunks()) for column in table.columns], axis=1)


def numbers_of(column: pa.Array) -> NDArray[np.generic]:
    """The numbers of a column; null becomes NaN. Shape (rows,)."""
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    return to_numpy(column)


@dataclass(frozen=True)
class ClassLabels:
    """The classes of some rows; indices are int64, MISSING for a row without. Shape (rows,).

    Attributes:
        notes: What was assumed, and what is probably not meant, one sentence each.
    """

    names: tuple[str, ...]
    indices: Tensor
    notes: tuple[str, ...] = ()


def index_classes(
    values: pa.Array | pa.ChunkedArray,
    names: pa.ChunkedArray | None = None,
    declared: Sequence[str] = (),
) -> ClassLabels:
    """The classes of labels, and the index of each row's label among them.

    Args:
        values: Labels as in `distinct_labels`.
        names: Names of integer labels; None where there are none.
        declared: Names of the labels 0, 1, 2, ...
    """
    source = "the list of labels"
    rows = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    is_named = names is not None or len(declared) > 0
    found = distinct_labels(rows, source, "row {}".format, "labels", is_named=is_named)
    indices = found.indices.copy()
    labelled = np.flatnonzero(indices >= 0)
    beside = None if names is None else names.take(to_arrow(labelled))
    class_names, indices[labelled] = name_classes(
        found, indices[labelled], beside, declared, source
    )
    assumed = () if is_list(rows.type) else found.notes  # an array of ones is plainly one-hot
    notes = (*assumed, *filter(None, [similar_names_warning(class_names, source)]))
    return ClassLabels(class_names, torch.from_numpy(indices), notes)


def classes_of_names(names: pa.ChunkedArray) -> ClassLabels:
    """The classes of rows by their names, as they are; null for a row without one."""
    encoded = names.combine_chunks().dictionary_encode()
    known = encoded.dictionary.to_pylist()
    place = {name: number for number, name in enumerate(sorted(known))}
    classes = np.array([*(place[name] for name in known), MISSING], np.int64)
    after_all = to_arrow(np.array([len(known)], np.int32))[0]
    indices = classes[np.from_dlpack(encoded.indices.fill_null(after_all))]
    return ClassLabels(tuple(place), torch.from_numpy(indices))
