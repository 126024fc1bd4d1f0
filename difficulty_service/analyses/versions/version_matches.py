"""Which samples of two versions of a dataset are the same, by their contents and ids."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

ADDED, REMOVED, CHANGED, MOVED, KEPT = "added", "removed", "changed", "moved", "kept"
KINDS = (KEPT, MOVED, CHANGED, ADDED, REMOVED)

Rows: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Matches:
    """Rows of samples in both versions, by how they were matched. Shapes (pairs,)."""

    old: Rows
    new: Rows
    kinds: Sequence[str]


def match_versions(
    old_ids: Sequence[str],
    new_ids: Sequence[str],
    old_contents: Sequence[bytes | None],
    new_contents: Sequence[bytes | None],
) -> Matches:
    """Matches samples by id and content, then by content, then by id.

    Of several samples with the same content, the first of one version matches the first of the
    other. What has no content is matched by its id alone.
    """
    places = {sample_id: row for row, sample_id in enumerate(old_ids)}
    found: dict[int, tuple[int, str]] = {}
    taken = set()
    for row, sample_id in enumerate(new_ids):
        other = places.get(sample_id)
        if other is not None and new_contents[row] == old_contents[other]:
            found[row] = (other, KEPT)
            taken.add(other)
    free: dict[bytes, deque[int]] = defaultdict(deque)
    for row, content in enumerate(old_contents):
        if row not in taken and content is not None:
            free[content].append(row)
    for row, content in enumerate(new_contents):
        if row not in found and content is not None and free.get(content):
            found[row] = (free[content].popleft(), MOVED)
            taken.add(found[row][0])
    for row, sample_id in enumerate(new_ids):
        other = places.get(sample_id)
        if row not in found and other is not None and other not in taken:
            found[row] = (other, CHANGED)
            taken.add(other)
    rows = sorted(found)
    return Matches(
        np.array([found[row][0] for row in rows], np.int64),
        np.array(rows, np.int64),
        [found[row][1] for row in rows],
    )
