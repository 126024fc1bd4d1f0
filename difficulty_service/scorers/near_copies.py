"""Pairs of samples whose features point in nearly the same direction, by exact search.

The features are compared as they are. Subtracting their mean first makes the cosines of different
images smaller, but separates copies from different images less well; docs/score-file.md has the
measurement.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.device_copies import begin_fetch_all
from difficulty_service.base.float32_products import full_float32
from difficulty_service.base.threads import one_ahead
from difficulty_service.scorers.faiss_package import check_finite, load_faiss

ROWS_AT_ONCE = 1 << 11
"""Rows that are compared with as many others at a time, which bounds the memory for pairs."""

ROUNDING = 1e-5
"""A cosine in float32 that is less than the threshold by no more than this still reaches it."""

Rows = NDArray[np.int64]
Cosines = NDArray[np.float32]


def near_pairs(features: Tensor, threshold: float) -> Iterator[tuple[Rows, Rows]]:
    """All pairs of samples whose cosine is at least a threshold, in (0, 1]; the time is quadratic.

    Args:
        features: Features of unit length, float32; rows of zeros are in no pair. Shape (samples,
            dim).

    Yields:
        Rows, and for each of them an earlier row. Shapes (pairs,).

    Raises:
        StatisticsError: A feature is not finite.
        MissingPackage: faiss is not installed.
    """
    check_finite(features)
    for first in range(0, len(features), ROWS_AT_ONCE):
        some = features[first : first + ROWS_AT_ONCE]
        for later, found, _ in _search(some, features[first:], threshold):
            in_order = found < later
            yield first + later[in_order], first + found[in_order]


def near_pairs_between(
    queries: Tensor, references: Tensor, threshold: float
) -> Iterator[tuple[Rows, Rows, Cosines]]:
    """All pairs of one sample of each of two sets; as `near_pairs`, but features must be finite.

    They may be on a GPU, both of them, where products of matrices find the pairs in place of faiss.

    Yields:
        Rows of the queries, and for each of them a row of the references and the cosine of both,
        which rounding may put a little above 1. Shapes (pairs,).
    """
    for first in range(0, len(references), ROWS_AT_ONCE):
        some = references[first : first + ROWS_AT_ONCE]
        for rows, found, cosines in _search(some, queries, threshold):
            yield rows, first + found, cosines


def _search(
    references: Tensor, queries: Tensor, threshold: float
) -> Iterator[tuple[Rows, Rows, Cosines]]:
    """Rows of the queries with those of the references, of which there are ROWS_AT_ONCE at most."""
    if references.device.type != "cpu":
        yield from pairs_by_products(references, queries, threshold)
        return
    faiss = load_faiss("near_duplicates")
    index: Any = faiss.IndexFlatIP(references.shape[1])
    index.add(references.numpy())
    for start in range(0, len(queries), ROWS_AT_ONCE):
        some = queries[start : start + ROWS_AT_ONCE]
        limits, cosines, found = index.range_search(some.numpy(), threshold - ROUNDING)
        counts = np.diff(limits.astype(np.int64))
        yield np.repeat(np.arange(start, start + len(some)), counts), found, cosines


def pairs_by_products(
    references: Tensor, queries: Tensor, threshold: float
) -> Iterator[tuple[Rows, Rows, Cosines]]:
    """As faiss searches, on the device of the features."""
    for fetch in one_ahead(_begin_pairs(references, queries, threshold)):
        yield fetch()


def _begin_pairs(
    references: Tensor, queries: Tensor, threshold: float
) -> Iterator[Callable[[], tuple[Rows, Rows, Cosines]]]:
    """What gives the pairs of each block of queries that has some."""
    for start in range(0, len(queries), ROWS_AT_ONCE):
        with full_float32():
            cosines = queries[start : start + ROWS_AT_ONCE] @ references.T
        # On a GPU this waits for the cosines, by which time those of the block before are there.
        places = (cosines >= threshold - ROUNDING).nonzero()
        if len(places):
            yield _begin_fetch_pairs(start, places, cosines)


def _begin_fetch_pairs(
    start: int, places: Tensor, cosines: Tensor
) -> Callable[[], tuple[Rows, Rows, Cosines]]:
    """Begins to copy pairs to the CPU; the function that it returns waits for them and gives them.

    Args:
        start: Row of the first query.
        places: Rows of `cosines` and its columns. Shape (pairs, 2).
    """
    fetch_both = begin_fetch_all([places, cosines[tuple(places.T)]])

    def fetch() -> tuple[Rows, Rows, Cosines]:
        places, cosines = fetch_both()
        rows, found = places.numpy().T
        return start + rows, found.copy(), cosines.numpy()

    return fetch
