"""The hardest samples and the doubtful labels that two score files share."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class SharedHardest:
    """How many of the hardest samples two files share.

    Attributes:
        share: Share of all samples that count as the hardest.
        count: Their number in each file.
        shared: Number of samples that are among the hardest in both files.
        by_chance: Expected number for two files that have nothing to do with each other.
    """

    share: float
    count: int
    shared: int
    by_chance: float


@dataclass(frozen=True)
class SharedDoubts:
    """How many samples look more like another class than their own in both files.

    Attributes:
        num_samples: Number of samples with a `label_margin` in both files.
        in_first: Number of them whose margin is above 0 in the first file.
        in_second: The same in the second file.
        shared: Number of samples whose margin is above 0 in both files.
        by_chance: Expected number for two files that have nothing to do with each other.
        same_class: Number of shared samples whose nearest class is the same in both files.
    """

    num_samples: int
    in_first: int
    in_second: int
    shared: int
    by_chance: float
    same_class: int


def shared_hardest(first: Numbers, second: Numbers, share: float) -> SharedHardest:
    """How many of the hardest samples are the same in both files.

    Args:
        first: Larger is harder; of equal scores the later samples count as harder.
            Shape (samples,).
        second: Scores of the same samples. Shape (samples,).
        share: Share of the samples that count as the hardest; at least one does.
    """
    size = len(first)
    count = max(1, round(share * size))
    hardest = [np.argsort(scores, kind="stable")[size - count :] for scores in (first, second)]
    shared = len(np.intersect1d(hardest[0], hardest[1], assume_unique=True))
    return SharedHardest(share, count, shared, count * count / size)


def shared_doubts(first: pa.Table, second: pa.Table) -> SharedDoubts | None:
    """How many labels look doubtful in both files; None where a file has no margins.

    Args:
        first: Columns `label_margin` and `nearest_label_name`.
        second: The same columns of the same samples.
    """
    margins = [numbers_of(table, "label_margin") for table in (first, second)]
    known = ~(np.isnan(margins[0]) | np.isnan(margins[1]))
    if not known.any():
        return None
    doubtful = [margin[known] > 0 for margin in margins]
    both = doubtful[0] & doubtful[1]
    nearest = [
        texts_of(table, "nearest_label_name").filter(pa.array(known)) for table in (first, second)
    ]
    same = pc.equal(*(each.filter(pa.array(both)) for each in nearest))
    return SharedDoubts(
        num_samples=int(known.sum()),
        in_first=int(doubtful[0].sum()),
        in_second=int(doubtful[1].sum()),
        shared=int(both.sum()),
        by_chance=float(doubtful[0].sum() * doubtful[1].sum() / known.sum()),
        same_class=pc.sum(same).as_py() or 0,
    )


def numbers_of(table: pa.Table, column: str) -> Numbers:
    """A column of numbers, NaN for null. Shape (samples,)."""
    numbers: Numbers = table[column].cast(pa.float64()).to_numpy()
    return numbers


def texts_of(table: pa.Table, column: str) -> pa.ChunkedArray:
    """A column as plain text."""
    return table[column].cast(pa.string())
