"""Features, labels and ids as people hold them in Python, converted to tensors and Arrow columns.

Nothing is imported that the caller has not imported: the type of an object is told by the name of
its package.

Labelled features that a program holds, as a source of features.
"""

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.tables import strings_to_arrow
from difficulty_service.features.array_columns import (
    column_of_array,
    index_classes,
    is_vector,
    matrix_of_columns,
    matrix_of_vectors,
    tensor_of,
)
from difficulty_service.features.arrays import ArrayFeatures, array_features
from difficulty_service.interface.tables import (
    Column,
    is_arrow,
    is_data_frame,
    is_hugging_face,
    is_mapping,
    is_pandas,
    read_arrow,
    refuse_lazy,
    require_one_order,
    to_table,
)

Matrix = Any
"""An object that holds rows of numbers; `to_matrix` lists the kinds."""

MATRIX_DIMENSIONS = 2

IMAGES_DIMENSIONS = (3, 4)
"""Of grey images and of images with channels."""


def to_matrix(features: Matrix) -> Tensor:
    """Features as a tensor, (samples, dim), on the memory of the object where it allows that.

    They are a tensor on any device, a NumPy array, a DataFrame or table of numbers or with one
    column of vectors, a Series or column of vectors, any object with `__arrow_c_stream__` or
    `__array__`, or nested sequences. Vectors are lists or arrays of one length.
    """
    if isinstance(features, Tensor):
        matrix = features.detach()
    elif isinstance(features, list | tuple) and features and isinstance(features[0], Tensor):
        matrix = torch.stack([row.detach() for row in features])
    else:
        matrix = tensor_of(to_array(features))
    if matrix.is_sparse or matrix.is_complex() or matrix.dtype == torch.bool:
        raise _unsuitable(f"a tensor of {matrix.dtype} and layout {matrix.layout}")
    if matrix.ndim != MATRIX_DIMENSIONS:
        flatten = "flatten features with features.reshape(len(features), -1)"
        if matrix.ndim in IMAGES_DIMENSIONS:
            flatten = (
                f"pass images to score_dataset(images, labels), which extracts features; {flatten}"
            )
        raise DatasetError(
            f"features have shape {tuple(matrix.shape)}, expected (samples, dimensions)",
            *(flatten,) * (matrix.ndim > 1),
            parameter="features",
        )
    return matrix


def holds_vectors(features: Matrix) -> bool:
    """Whether features are in a form that scikit-learn does not read as a table of numbers.

    Each row is one cell, as in a column of lists, or the table is none that NumPy knows.
    """
    if is_data_frame(features) or isinstance(features, pa.Table):
        return features.shape[1] == 1 and is_vector(read_arrow(features[:1]).field(0).type)
    return is_mapping(features) or is_hugging_face(features) or is_arrow(features)


def to_array(features: Matrix) -> NDArray[Any]:
    """An array of the numbers of an object that is no tensor; what is masked is NaN."""
    refuse_lazy(features, "features")
    if isinstance(features, np.ma.MaskedArray):
        held: NDArray[Any] = np.ma.filled(
            features.astype(np.result_type(features, np.float32)), np.nan
        )
        return held
    if hasattr(features, "toarray"):
        raise DatasetError(
            f"the features are a sparse {type(features).__name__}",
            "pass features.toarray()",
            parameter="features",
        )
    if is_pandas(features, "DataFrame") or is_pandas(features, "Series"):
        return _of_pandas(features)
    if is_mapping(features):
        return _of_table(to_table(features, "the table of features", "features"))
    if is_arrow(features) or is_hugging_face(features):
        held = read_arrow(features)
        is_table = isinstance(held, pa.Table)
        return _of_table(held) if is_table else matrix_of_vectors(held, "the features")
    try:
        return np.asarray(features)
    except (TypeError, ValueError) as error:
        raise _unsuitable(f"{type(features).__name__}, of which no array can be made") from error


def to_column(values: Column, parameter: str) -> pa.Array | pa.ChunkedArray:
    """Labels or ids as an Arrow column; a missing value, such as None or NaN, is null."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    is_plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
    if is_plain and (column := column_of_array(values)) is not None:
        return column
    refuse_lazy(values, parameter)
    try:
        if is_arrow(values):
            return _only_column(read_arrow(values), parameter)
        plain = [_plain(value) for value in values]
        texts = [value for value in plain if isinstance(value, str)]
        return strings_to_arrow(texts) if len(texts) == len(plain) else pa.array(plain)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{parameter} are no column of one type: {' '.join(str(error).split())}",
            "pass integers or text, one for each row",
            parameter=parameter,
        ) from error


def _plain(value: object) -> object:
    """A value without the wrapping of a library; None where it is missing."""
    if hasattr(value, "tolist"):  # of arrays, tensors and their numbers
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if is_missing(value) else value


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or the missing value of pandas."""
    pandas = sys.modules.get("pandas")
    if value is None or (pandas is not None and value is pandas.NA):
        return True
    return bool(value != value)  # noqa: PLR0124 - only NaN differs from itself


def to_texts(ids: Column, parameter: str) -> list[str]:
    """Ids as a list, also of a Series or a column of Arrow; whole numbers as their digits."""
    is_column = is_arrow(ids) or isinstance(ids, Tensor)
    listed = to_column(ids, parameter).to_pylist() if is_column else list(ids)
    for each in listed:
        if not isinstance(each, str | int | np.integer):
            raise DatasetError(
                f"{parameter} hold {each!r}",
                "pass text or whole numbers, one for each sample",
                parameter=parameter,
            )
    # Features and arrays without ids are numbered, and their score file has the numbers as texts.
    return [str(each) if isinstance(each, int | np.integer) else each for each in listed]


def _only_column(held: pa.Table | pa.ChunkedArray, parameter: str) -> pa.ChunkedArray:
    """A column, or that of a table of one."""
    if isinstance(held, pa.ChunkedArray):
        return held
    if held.num_columns == 1:
        return held.column(0)
    raise DatasetError(
        f"{parameter} are a table of {held.num_columns} columns",
        "pass one of them",
        parameter=parameter,
    )


def _of_pandas(held: Any) -> NDArray[Any]:  # noqa: ANN401 - pandas is optional
    """A DataFrame or Series; a Series, or the only column of a DataFrame, may hold vectors."""
    is_series = held.ndim == 1
    if is_series or held.shape[1] == 1:
        series = held if is_series else held.iloc[:, 0]
        try:
            column = plain_column(pa.array(series, from_pandas=True))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass  # values of several types, which NumPy may know better
        else:
            if is_vector(column.type):
                return matrix_of_vectors(column, "the features")
    return np.asarray(held.tolist()) if is_series else _of_frame(held)


def _of_frame(frame: Any) -> NDArray[Any]:  # noqa: ANN401 - pandas is optional
    """Columns that are not numbers are named."""
    kinds = {str(name): kind for name, kind in frame.dtypes.items()}
    others = [name for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "fiu"]
    if others:
        raise DatasetError(
            f"columns {others[:5]} of the features are not numbers",
            "drop or convert them",
            parameter="features",
        )
    if all(isinstance(kind, np.dtype) for kind in kinds.values()):
        array: NDArray[Any] = frame.to_numpy()
    else:
        array = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return array


def _of_table(table: pa.Table) -> NDArray[Any]:
    """A single column may hold vectors; otherwise each column is one dimension."""
    if table.num_columns == 1 and is_vector(table.schema.field(0).type):
        return matrix_of_vectors(table.column(0), repr(table.column_names[0]))
    return matrix_of_columns(table)


def _unsuitable(found: str) -> DatasetError:
    return DatasetError(
        f"the features are {found}",
        "pass a matrix of real numbers, one row for each sample",
        parameter="features",
    )


def read_arrays(
    features: Matrix, labels: Column, ids: Column, *, on_gpu: bool = False
) -> ArrayFeatures:
    """Features, labels and ids as a source of features; see `difficulty_service.score`.

    They are read on the CPU, or where `on_gpu` says so on the NVIDIA GPU that a tensor is on.
    """
    require_one_order(features, labels, "features", "labels")
    require_one_order(features, ids, "features", "ids")
    matrix = to_matrix(features)
    classes = index_classes(to_column(labels, "labels"))
    device = matrix.device if on_gpu and matrix.is_cuda else torch.device("cpu")
    return array_features(matrix, classes, _ids(features, ids), "arrays in memory", device)


def _ids(features: Matrix, ids: Column) -> pa.Array | None:
    if ids is None:
        if not is_pandas(features, "DataFrame") or not features.index.is_unique:
            return None
        if features.index.nlevels > 1 or features.index.hasnans:
            return None
        ids = features.index.to_series()
    column = to_column(ids, "ids")
    try:
        texts = column.cast(pa.string())
    except pa.ArrowException as error:
        raise DatasetError(
            f"ids of type {column.type} cannot become text: {error}", parameter="ids"
        ) from error
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
