"""Samples to choose from, and the strategies that need no more than their order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Positions: TypeAlias = NDArray[np.int64]


def ignore(_compared: int) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True)
class Pool:
    """Samples to choose from.

    Attributes:
        free: Whether a sample may be chosen. The others are chosen already. Shape (samples,).
        features: Features of unit length, float32 on the CPU; a row of zeros says nothing of its
            sample. Shape (samples, dim); None where no strategy reads them.
        scores: Difficulty, larger is harder; NaN where it is not known. Shape (samples,); None
            where no strategy reads them.
        covered: Features of samples outside the pool that have labels already, as `features`.
            Shape (covered, dim); None without any.
        seed: Random seed.
        on_compared: Called with the number of pairs of samples that were compared since the last
            call.
    """

    free: NDArray[np.bool_]
    features: Tensor | None = None
    scores: NDArray[np.float64] | None = None
    covered: Tensor | None = None
    seed: int = 0
    on_compared: Callable[[int], None] = field(default=ignore, compare=False)


Choose: TypeAlias = Callable[[Pool, int], Positions]
"""Positions of as many samples of a pool as are asked for, the best first; fewer where the
strategy knows nothing of the others."""


def choose_random(pool: Pool, count: int) -> Positions:
    """Any samples, each as probable as any other."""
    free = np.flatnonzero(pool.free)
    chosen: Positions = np.random.default_rng(pool.seed).permutation(free)[:count]
    return chosen


def choose_hard(pool: Pool, count: int) -> Positions:
    """Samples with the largest scores, of equal ones the first."""
    assert pool.scores is not None  # noqa: S101 - the registry says that they are read
    return _first(-pool.scores, pool.free, count)


def choose_easy(pool: Pool, count: int) -> Positions:
    """Samples with the smallest scores, of equal ones the first."""
    assert pool.scores is not None  # noqa: S101 - the registry says that they are read
    return _first(pool.scores, pool.free, count)


def _first(values: NDArray[np.float64], free: NDArray[np.bool_], count: int) -> Positions:
    known = np.flatnonzero(free & ~np.isnan(values))
    chosen: Positions = known[np.argsort(values[known], kind="stable")[:count]]
    return chosen
