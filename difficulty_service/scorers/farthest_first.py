"""Diverse samples: each is the one that is farthest from all that were chosen before it.

The greedy k-centre of Gonzalez (1985), which Sener and Savarese (2018) use for active learning: no
choice of as many samples has less than half its largest distance from a sample to the nearest
chosen one.

Distances to what is chosen only become smaller, so an old distance is an upper bound. After each
pass over the features, the samples with the largest distances are held, and only their distances
are renewed while one of them is at least as far as the old distance of every other. So the choice
is that of the plain algorithm, which reads all features again for each sample that it chooses, in
far fewer passes. The time is that of comparing every sample with every chosen one; the memory, a
number for each sample.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.float32_products import full_float32
from difficulty_service.scorers.pool import Pool, Positions

ROWS_AT_ONCE = 1 << 13
"""Samples whose distances are renewed at a time."""

CENTRES_AT_ONCE = 1 << 10
"""Chosen samples with which these are compared at a time."""

HELD = 1 << 12
"""Samples that are looked at between two passes over the features."""

UNKNOWN = -1.0
"""In place of the distance of a row of zeros, which is chosen when no other is left."""

Distances = NDArray[np.float32]


@full_float32()
def choose_farthest(pool: Pool, count: int) -> Positions:
    """Samples that are far from each other and from all that is chosen or covered already.

    Distances are 1 minus the cosine, which orders vectors of unit length as Euclid does. The first
    sample is any one, where nothing is chosen or covered. Of equal distances, the first one counts.
    """
    assert pool.features is not None  # noqa: S101 - the registry says that they are read
    features, free = pool.features, pool.free
    count = min(count, int(free.sum()))
    distances = np.full(len(free), np.inf, np.float32)
    distances[~_is_known(features)] = UNKNOWN
    taken = np.flatnonzero(~free)
    distances[taken] = -np.inf
    chosen: list[int] = []
    if pool.covered is not None:
        _renew(distances, pool, pool.covered)
    _renew(distances, pool, features[torch.from_numpy(taken)])
    if np.isposinf(distances).any() and count:
        among = np.flatnonzero(np.isposinf(distances))
        chosen.append(int(np.random.default_rng(pool.seed).choice(among)))
        distances[chosen] = -np.inf
    seen = 0
    while len(chosen) < count:
        _renew(distances, pool, features[torch.tensor(chosen[seen:], dtype=torch.int64)])
        seen = len(chosen)
        chosen += _choose_among_held(distances, features, count - len(chosen))
    return np.array(chosen, np.int64)


def _choose_among_held(distances: Distances, features: Tensor, count: int) -> list[int]:
    """The next choices, as many as can be told from the farthest samples alone; at least one.

    Sets the distances of what it chooses, and of nothing else.
    """
    held = _farthest(distances)
    others = distances.copy()
    others[held] = -np.inf
    first = int(others.argmax())
    bound = (others[first], -first)
    own, rows = distances[held], features[torch.from_numpy(held)]
    chosen: list[int] = []
    while len(chosen) < count:
        best = int(own.argmax())
        if (own[best], -int(held[best])) < bound or own[best] == -np.inf:
            break
        chosen.append(int(held[best]))
        own[best] = -np.inf
        np.minimum(own, 1 - (rows @ rows[best]).numpy(), out=own)
    distances[chosen] = -np.inf
    return chosen


def _farthest(distances: Distances) -> Positions:
    """Positions of the HELD largest distances, of equal ones the first; ascending."""
    if len(distances) <= HELD:
        return np.arange(len(distances))
    least = np.partition(distances, len(distances) - HELD)[len(distances) - HELD]
    above = np.flatnonzero(distances > least)
    equal = np.flatnonzero(distances == least)[: HELD - len(above)]
    return np.sort(np.concatenate([above, equal]))


def _renew(distances: Distances, pool: Pool, centres: Tensor) -> None:
    """Makes each distance that to the nearest centre too, where that is smaller."""
    assert pool.features is not None  # noqa: S101 - the caller has them
    for some in centres.split(CENTRES_AT_ONCE):
        if not len(some):
            continue
        for start in range(0, len(distances), ROWS_AT_ONCE):
            part = distances[start : start + ROWS_AT_ONCE]
            cosines = pool.features[start : start + ROWS_AT_ONCE] @ some.T
            np.minimum(part, 1 - cosines.amax(dim=1).numpy(), out=part)
            pool.on_compared(len(part) * len(some))


def _is_known(features: Tensor) -> NDArray[np.bool_]:
    """Whether each row is not all zeros. From shape (samples, dim) to (samples,)."""
    parts = [rows.any(dim=1) for rows in features.split(ROWS_AT_ONCE)]
    known: NDArray[np.bool_] = torch.cat(parts).numpy() if parts else np.empty(0, np.bool_)
    return known
