"""Labelled features that a program holds, as a source of features."""

import pyarrow as pa

from difficulty_service.errors import DatasetError
from difficulty_service.feature_store.array_labels import index_classes
from difficulty_service.feature_store.arrays import ArrayFeatures, array_features
from difficulty_service.interface.arrays import Column, Matrix, is_pandas, to_column, to_matrix


def read_arrays(features: Matrix, labels: Column, ids: Column) -> ArrayFeatures:
    """Features, labels and ids as a source of features.

    Args, ids and errors are those of `difficulty_service.score`.
    """
    matrix = to_matrix(features)
    classes = index_classes(to_column(labels, "labels"))
    return array_features(matrix, classes, _ids(features, ids), "arrays in memory")


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
