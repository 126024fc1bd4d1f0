"""Pairs of samples whose features point in nearly the same direction, by exact search.

The features are compared as they are. Subtracting their mean first makes the cosines of different
images smaller, but separates copies from different images less well; docs/score-file.md has the
measurement.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.scorers.faiss_package import check_finite, load_faiss

ROWS_AT_ONCE = 1 << 11
"""Rows that are compared with as many others at a time, which bounds the memory for pairs."""

ROUNDING = 1e-5
"""A cosine in float32 that is less than the threshold by no more than this still reaches it."""

Rows = NDArray[np.int64]


def near_pairs(features: Tensor, threshold: float) -> Iterator[tuple[Rows, Rows]]:
    """All pairs of samples whose cosine is at least a threshold, in (0, 1]; the time is quadratic.

    Args:
        features: Features of unit length, float32 on the CPU; rows of zeros are in no pair. Shape
            (samples, dim).

    Yields:
        Rows, and for each of them an earlier row. Shapes (pairs,).

    Raises:
        StatisticsError: A feature is not finite.
        MissingPackage: faiss is not installed.
    """
    check_finite(features)
    faiss = load_faiss("near_duplicates")
    rows: NDArray[np.float32] = features.numpy()
    for first in range(0, len(rows), ROWS_AT_ONCE):
        index: Any = faiss.IndexFlatIP(rows.shape[1])
        index.add(rows[first : first + ROWS_AT_ONCE])
        for start in range(first, len(rows), ROWS_AT_ONCE):
            queries = rows[start : start + ROWS_AT_ONCE]
            limits, _, found = index.range_search(queries, threshold - ROUNDING)
            counts = np.diff(limits.astype(np.int64))
            later = np.repeat(np.arange(start, start + len(queries)), counts)
            earlier = first + found
            in_order = earlier < later
            yield later[in_order], earlier[in_order]
