"""What a round of review changed: which labels are doubted now and were not before, or no more."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.scores.samples import ScoredSamples


@dataclass(frozen=True)
class RoundChange:
    """The labels that nobody decided about and that are seen otherwise than in the round before.

    Attributes:
        newly_doubtful: Rows of the later scores that are doubtful now and were not before, the most
            doubtful first. Shape (rows,).
        settled: Rows of the later scores that were doubtful before and fit now, those first that
            were the most doubtful. Shape (rows,).
    """

    newly_doubtful: NDArray[np.int64]
    settled: NDArray[np.int64]


def change_between(before: ScoredSamples, after: ScoredSamples) -> RoundChange:
    """What changed from one round to a later one, of the samples that both have."""
    now = np.flatnonzero(after.is_doubtful)
    then = np.flatnonzero(before.is_doubtful)
    rows_before = _rows_of(after.ids.take(pa.array(now)), before.ids)
    rows_after = _rows_of(before.ids.take(pa.array(then)), after.ids)
    is_new = (rows_before >= 0) & ~before.is_doubtful[rows_before] & ~_verified(before, rows_before)
    newly = now[is_new]
    is_settled = (rows_after >= 0) & ~after.is_doubtful[rows_after] & ~_verified(after, rows_after)
    settled, doubts = rows_after[is_settled], before.doubts[then[is_settled]]
    return RoundChange(
        newly[np.argsort(-after.doubts[newly], kind="stable")],
        settled[np.argsort(-doubts, kind="stable")],
    )


def _rows_of(wanted: pa.Array, among: pa.Array) -> NDArray[np.int64]:
    """Row of each of a few ids among many, -1 where it is not there. Shape (ids,)."""
    # The hash table is that of the few, not of all samples.
    places = pc.index_in(among, value_set=wanted)
    found = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    rows = np.full(len(wanted), -1, np.int64)
    rows[places.drop_null().to_numpy()] = found
    return rows


def _verified(samples: ScoredSamples, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    if samples.verified is None:
        return np.zeros(len(rows), bool)
    return np.asarray(samples.verified[rows])
