"""Samples of two sets that were read from the same bytes, or have the same features."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from difficulty_service.scoring.splits import (
    ROWS_AT_ONCE,
    Block,
    Rows,
    Split,
    require_same_kind,
)

HELD_BYTES = 1 << 28
"""Features of a test set that are held in memory while the training set is read; inverted lists
hold them once more."""


def blocks_at_once(split: Split) -> Iterator[Sequence[Block]]:
    """The samples of a split in groups of blocks, each of which fits in memory."""
    waiting = split.blocks()
    while (first := next(waiting, None)) is not None:
        at_once = max(1, HELD_BYTES // (ROWS_AT_ONCE * first.features[:1].nbytes))
        yield [first, *islice(waiting, at_once - 1)]


def have_exact_copy(split: Split, others: Split) -> NDArray[np.bool_]:
    """Whether another set has an exact copy of each sample of the features. Shape (samples,)."""
    require_same_kind(others, split)
    found = np.zeros(len(split.labels), bool)
    for held in blocks_at_once(split):
        for references in others.blocks():
            for queries in held:
                rows = exact_pairs(queries, references) // len(references)
                found[queries.positions[rows]] = True
    return found


def exact_pairs(queries: Block, references: Block) -> Rows:
    """Pairs of exact copies: row times the number of references plus column, ascending."""
    return np.union1d(_same_contents(queries, references), _same_features(queries, references))


def _same_contents(queries: Block, references: Block) -> Rows:
    """Pairs that were read from the same bytes, by row and column in one number."""
    one, other = queries.contents, references.contents
    if one is None or other is None:
        return np.empty(0, np.int64)
    rows, columns = equal_pairs(first_numbers(one), first_numbers(other))
    same = (one[rows] == other[columns]).all(axis=1)
    codes: Rows = rows[same] * len(references) + columns[same]
    return codes


def _same_features(queries: Block, references: Block) -> Rows:
    """Pairs with the same features, which are not all zeros."""
    known, among = np.flatnonzero(queries.is_known), np.flatnonzero(references.is_known)
    rows, columns = equal_pairs(queries.hashes[known], references.hashes[among])
    rows, columns = known[rows], among[columns]
    same = (queries.features[rows] == references.features[columns]).all(dim=1).numpy()
    codes: Rows = rows[same] * len(references) + columns[same]
    return codes


def first_numbers(digests: NDArray[np.uint8]) -> NDArray[np.int64]:
    """First 64 bits of each digest. From shape (rows, bytes) to (rows,)."""
    return np.ascontiguousarray(digests[:, :8]).view(np.int64).ravel()


def equal_pairs(one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[Rows, Rows]:
    """Rows of all pairs of equal numbers of two arrays. Shapes (pairs,)."""
    order = np.argsort(one, kind="stable")
    first, last = (np.searchsorted(one[order], other, side) for side in ("left", "right"))
    counts = last - first
    columns = np.repeat(np.arange(len(other)), counts)
    places = np.arange(len(columns)) + np.repeat(first - (counts.cumsum() - counts), counts)
    return order[places], columns
