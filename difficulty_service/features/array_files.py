"""Features that other programs saved: `.npz`, `.npy` beside its labels, and Parquet tables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.numpy_files import read_array, read_arrays
from difficulty_service.base.tables import UNREADABLE, read_parquet, read_parquet_schema
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.declared_names import declared_names
from difficulty_service.datasets.labels import (
    LABEL_NAMES,
    is_text,
    label_like,
    several_labels_warning,
)
from difficulty_service.datasets.table_columns import (
    IMAGE_NAMES,
    holds_bytes,
    label_name_column,
)
from difficulty_service.datasets.text_tables import decode_names
from difficulty_service.features.array_columns import (
    ClassLabels,
    column_of_array,
    index_classes,
    is_number,
    is_vector,
    matrix_of_vectors,
    tensor_of,
)
from difficulty_service.features.arrays import ArrayFeatures, array_features
from difficulty_service.features.store import FeatureStore, open_store

FEATURE_NAMES = ("features", "X", "x", "embeddings", "embedding", "feature", "vector")
"""Default names of features, by priority."""

ID_NAMES = ("sample_id", "ids", "id")
"""Default names of ids, by priority."""

LABELS_FILE = "labels.npy"
"""Name of the labels beside a file of features alone."""

MATRIX_DIMENSIONS = 2
IMAGE_DIMENSIONS = 4
"""Of an array of images: image, row, column and channel."""

Names = Sequence[str]


@dataclass(frozen=True)
class SavedArrays:
    """Features of shape (rows, dim), and a label and an id per row where the file holds them.

    Attributes:
        notes: What was chosen among several, one sentence each.
    """

    features: Tensor
    labels: ClassLabels | None = None
    ids: pa.Array | None = None
    notes: tuple[str, ...] = ()


def is_array_file(path: Path) -> bool:
    """Whether a file holds features, not images: `.npz`, `.npy`, or Parquet with vectors."""
    suffix = path.suffix.lower()
    if suffix not in READERS or not path.is_file():
        return False
    if suffix == ".npy":
        return not _holds_images(path)
    if suffix != ".parquet":
        return True
    try:
        schema = read_parquet_schema(path)
        decode_names(schema)
    except UNREADABLE:
        return False  # the reader of tables names what is wrong with it
    if any(holds_bytes(field.type) for field in schema):
        return False
    named = set(FEATURE_NAMES) & set(_vectors(schema))
    return bool(named) or (bool(_vectors(schema)) and not set(IMAGE_NAMES) & set(schema.names))


def read_array_file(path: Path, labels_file: Path | None = None) -> ArrayFeatures:
    """Opens features with their labels; an `.npy` file is mapped and not read into memory.

    Args:
        path: `.npz` with arrays named as in FEATURE_NAMES, LABEL_NAMES and ID_NAMES; `.npy` beside
            `labels.npy`; or Parquet with a column of lists and one of labels.
        labels_file: `.npy`, or a text file with a label on each line and none on an empty one, in
            place of the labels in the file or beside it; None for those.
    """
    with _naming(path):
        arrays = READERS[path.suffix.lower()](path)
    labels = arrays.labels
    if labels_file is not None:
        with _naming(labels_file):
            labels = index_classes(_read_labels(labels_file))
    if labels is None:
        raise DatasetError(
            f"{path} holds no labels",
            f"write them beside it as {LABELS_FILE}, or name their file as "
            if path.suffix.lower() == ".npy"
            else f"add them as {LABEL_NAMES[0]!r} to the file, or name their file as ",
            Setting("labels"),
            parameter="labels",
        )
    both = path if labels_file is None else f"{path} with the labels of {labels_file}"
    try:
        opened = array_features(arrays.features, labels, arrays.ids, str(path))
    except DatasetError as error:
        problem = f"{both}: {error.problem}"
        raise type(error)(problem, *error.remedy, parameter=error.parameter) from error
    return replace(opened, warnings=(*arrays.notes, *opened.warnings))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names a file that turns out within to be damaged."""
    try:
        yield
    except UNREADABLE as error:
        raise DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _read_npz(path: Path) -> SavedArrays:
    def choose(present: Names) -> Names:
        if _first(FEATURE_NAMES, present) is None:
            raise DatasetError(
                f"{path} holds the arrays {present}, none of which is named as features",
                f"expected one of {', '.join(FEATURE_NAMES)}; arrays of images are scored in "
                "Python, by `difficulty_service.score_dataset(images, labels)`",
            )
        found.extend(present)
        return [name for name in (_first(names, present) for names in kinds) if name is not None]

    found: list[str] = []
    kinds = (FEATURE_NAMES, LABEL_NAMES, ID_NAMES)
    arrays = read_arrays(path, choose)
    features = next(iter(arrays))
    labels, ids = (_first(names, [*arrays]) for names in (LABEL_NAMES, ID_NAMES))
    given = None if labels is None else _column(arrays[labels], f"{labels} of {path}")
    return SavedArrays(
        tensor_of(arrays[features]),
        None if given is None else _noting(index_classes(given), labels, found),
        None if ids is None else _column(arrays[ids], f"{ids} of {path}").cast(pa.string()),
        _choices(features, [name for name in FEATURE_NAMES if name in found]),
    )


def _read_npy(path: Path) -> SavedArrays:
    features = tensor_of(read_array(path, mapped=True))
    beside = path.with_name(LABELS_FILE)
    if beside == path or not beside.is_file():
        return SavedArrays(features)
    with _naming(beside):
        return SavedArrays(features, index_classes(_read_labels(beside)))


def _read_parquet(path: Path) -> SavedArrays:
    schema = read_parquet_schema(path)
    vectors = _vectors(schema)
    features = _first(FEATURE_NAMES, vectors) or vectors[0]
    labels, ids = (_first(names, schema.names) for names in (LABEL_NAMES, ID_NAMES))
    beside = None if labels is None else label_name_column(schema, labels, None)
    used = dict.fromkeys(name for name in (features, labels, beside, ids) if name is not None)
    table = read_parquet(path, list(used))
    for name in filter(None, (labels, beside, ids)):
        table.column(name).validate(full=True)  # text that is not UTF-8
    classes = None
    if labels is not None:
        names = None if beside is None else table.column(beside)
        found = index_classes(table.column(labels), names, declared_names(schema, labels))
        classes = _noting(found, labels, [field.name for field in schema if _may_be_labels(field)])
    return SavedArrays(
        tensor_of(matrix_of_vectors(table.column(features), f"column {features!r} of {path}")),
        classes,
        None if ids is None else table.column(ids).cast(pa.string()).combine_chunks(),
        _choices(features, vectors),
    )


def _choices(features: str, vectors: Names) -> tuple[str, ...]:
    """A sentence where others may be the features."""
    others = [repr(name) for name in vectors if name != features]
    hold = "holds" if len(others) == 1 else "hold"
    sentence = f"features are read from {features!r}; {list_names(others)} {hold} vectors too"
    return (sentence,) if others else ()


def _noting(labels: ClassLabels, name: str | None, names: Names) -> ClassLabels:
    """The labels with a sentence where others look like labels, too."""
    others = [other for other in label_like(names) if other != name]
    if name is None or not others:
        return labels
    return replace(labels, notes=(several_labels_warning(name, others), *labels.notes))


def _holds_images(path: Path) -> bool:
    """Whether an array is one of pictures, as the files of CIFAR-10-C are."""
    try:
        return read_array(path, mapped=True).ndim == IMAGE_DIMENSIONS
    except UNREADABLE:
        return False  # the reader of features names what is wrong with it


READERS = {".npz": _read_npz, ".npy": _read_npy, ".parquet": _read_parquet}


def _vectors(schema: pa.Schema) -> list[str]:
    return [
        field.name
        for field in schema
        if is_vector(field.type) and (field.name in FEATURE_NAMES or field.name not in LABEL_NAMES)
    ]


def _may_be_labels(field: pa.Field) -> bool:
    return is_text(field.type) or is_number(field.type)


def _first(names: Names, present: Names) -> str | None:
    return next((name for name in names if name in present), None)


def _read_labels(path: Path) -> pa.Array:
    if path.suffix.lower() == ".npy":
        return _column(read_array(path), str(path))
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return pa.array([line.strip() or None for line in lines], pa.string())


def _column(array: NDArray[Any], source: str) -> pa.Array:
    if array.ndim == MATRIX_DIMENSIONS and array.shape[1] > 1 and array.dtype.kind in "biuf":
        rows = np.ascontiguousarray(array)  # which are one-hot
        return pa.FixedSizeListArray.from_arrays(column_of_array(rows.ravel()), rows.shape[1])
    column = column_of_array(array)
    if column is None:
        raise DatasetError(
            f"{source} is an array of {array.dtype} of shape {array.shape}",
            "expected one integer or text for each row",
            parameter="labels",
        )
    return column


def open_features(path: Path, labels_file: Path | None = None) -> FeatureStore | ArrayFeatures:
    """Opens a folder that `difficulty extract` wrote, or a file as `read_array_file` does.

    Raises:
        FeatureStoreError: The folder is not a store, or it is incomplete or damaged.
        DatasetError: The file is damaged, or holds no features or no labels.
    """
    if is_array_file(path):
        return read_array_file(path, labels_file)
    return open_store(path)
