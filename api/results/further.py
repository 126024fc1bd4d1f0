"""What a person may check once a list of doubtful labels is through."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from api.results.conditions import NOTHING_BESIDE, ImageQuery, matching_rows
from api.results.first_places import first_places
from difficulty_service.scores.samples import ScoredSamples

AT_A_TIME = 20
"""Labels that are offered next."""

WORTH = 1 / 40
"""Share of them that is expected to be wrong, below which a review may end.

Below 1/2, about twice as many are wrong as expected, so that this is about one in twenty.
"""

FOLLOWED = ("doubtful", "suspicion")
"""Orders of the lists after which labels are offered."""


@dataclass(frozen=True)
class Further:
    """The next labels to check."""

    first: int  # row of the first of them
    number: int  # how many they are
    expected: float  # how many of them are expected to be wrong: the sum of `p_wrong`
    conditions: Mapping[str, object]  # parameters of the list that ends with them

    @property
    def share(self) -> float:
        """Share of them that is expected to be wrong."""
        return self.expected / self.number

    @property
    def is_worth_it(self) -> bool:
        """Whether enough of them are expected to be wrong to go on."""
        return self.share >= WORTH

    @property
    def in_words(self) -> str:
        """How many of them are expected to be wrong."""
        number = round(self.expected)
        if number == 0:
            return "fewer than one is expected to be wrong"
        return f"about {number:,} {'is' if number == 1 else 'are'} expected to be wrong"

    @property
    def offer(self) -> str:
        """What a link to them says."""
        return f"Check {self.number} more: {self.in_words}"


def find_further(
    samples: ScoredSamples, query: ImageQuery, marked: Collection[int]
) -> Further | None:
    """The labels to check after those of a list; None where the list is another one, or the last.

    Args:
        query: The conditions of the list.
        marked: Rows with a mark.
    """
    if samples.suspicion is None or query.order not in FOLLOWED:
        return None
    listed = matching_rows(samples, replace(query, mark="", after=""), NOTHING_BESIDE)
    if listed is None:  # all of them
        return None
    everything = ImageQuery(sort="suspicion", share=query.share)
    p_wrong = samples.p_wrong
    open_ones = _mask(len(samples), matching_rows(samples, everything)) & ~np.isnan(p_wrong)
    open_ones[listed] = False
    open_ones[np.fromiter(marked, np.int64)] = False
    rows = np.flatnonzero(open_ones)
    rows = rows[first_places(-p_wrong[rows], AT_A_TIME + 1)]
    if not len(rows):
        return None
    limit = _between(p_wrong[rows])
    chosen = rows[p_wrong[rows] > float(limit)]
    if not len(chosen):  # all of them are alike
        return None
    list_of_them = replace(everything, p_wrong=limit, mark="none")
    return Further(
        first=int(chosen[0]),
        number=len(chosen),
        expected=float(p_wrong[chosen].sum()),
        conditions=list_of_them.conditions,
    )


def _between(p_wrong: NDArray[np.float64]) -> str:
    """A probability that all of them exceed but the one beyond the last."""
    last, beyond = (p_wrong[-2], p_wrong[-1]) if len(p_wrong) > AT_A_TIME else (p_wrong[-1], 0.0)
    return f"{(last + beyond) / 2:.6g}"


def _mask(length: int, rows: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    mask = np.full(length, rows is None)
    if rows is not None:
        mask[rows] = True
    return mask
