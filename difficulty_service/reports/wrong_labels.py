"""How many labels are wrong, from flipped labels and from samples that a person has looked at.

Flipped labels show which share of such errors lies above a cut of the label margin: the recall.
Only a person can tell which share of the samples above the cut is wrong: the precision. Together,
`wrong = samples above the cut x precision / recall`.

Labels that people got wrong are harder to find than flipped ones, because people err on ambiguous
images. The difference grows with the cut, so the number is estimated above a margin of 0 alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from difficulty_service.scores.label_counts import Proportion
from difficulty_service.scores.random_checks import LEVEL

if TYPE_CHECKING:
    from difficulty_service.reports.label_flips import FlippedMargins

TOP_SHARES = (0.05, 0.02, 0.01)
"""Shares of the samples, those with the largest margins, whose smallest margins are cuts."""

DRAWS = 20_000


@dataclass(frozen=True)
class CutEstimate:
    """What is known about the samples whose label margin is above a cut.

    Attributes:
        confused: The same of labels flipped to classes that are easily confused with their own.
        reviewed: Share of wrong labels among those above the cut that a person has looked at.
    """

    cut: float
    num_above: int
    at_random: Proportion
    confused: Proportion
    reviewed: Proportion


def estimate_cuts(flipped: "FlippedMargins", reviewed: Mapping[str, bool]) -> list[CutEstimate]:
    """Estimates at a margin of 0, and where 5, 2 and 1 % of the samples have a larger one."""
    quantiles = np.quantile(flipped.margins, [1 - share for share in TOP_SHARES])
    cuts = sorted({0.0, *(round(float(cut), 1) for cut in quantiles if cut > 0)})
    margin_of = dict(zip(flipped.sample_ids, flipped.margins.tolist(), strict=True))
    known = [(margin_of[each], wrong) for each, wrong in reviewed.items() if each in margin_of]
    return [_estimate(cut, flipped, known) for cut in cuts]


def number_of_wrong_labels(at_zero: CutEstimate, seed: int = 0) -> tuple[float, float]:
    """Lower and upper estimate of the number of wrong labels in the whole dataset, at 95 %.

    The ends are the widest of those with either kind of flips. Real errors tend to be found less
    often than flips, in which case there are more.

    The samples that were looked at must be a random choice among those above 0; the largest margins
    alone would give too many wrong labels.
    """
    tail = (1 - LEVEL) / 2
    bounds = [
        np.quantile(_draw_numbers(at_zero, recall, seed), [tail, 1 - tail])
        for recall in (at_zero.at_random, at_zero.confused)
    ]
    return float(min(low for low, _ in bounds)), float(max(high for _, high in bounds))


def _estimate(
    cut: float, flipped: "FlippedMargins", known: Sequence[tuple[float, bool]]
) -> CutEstimate:
    at_random, confused = (
        Proportion(int((margins > cut).sum()), len(margins))
        for margins in (flipped.at_random, flipped.confused)
    )
    above = [wrong for margin, wrong in known if margin > cut]
    num_above = int((flipped.margins > cut).sum())
    return CutEstimate(cut, num_above, at_random, confused, Proportion(sum(above), len(above)))


def _draw_numbers(at_zero: CutEstimate, recall: Proportion, seed: int) -> NDArray[np.float64]:
    """Numbers of wrong labels, with precision and recall drawn from their Jeffreys posteriors."""
    generator = np.random.default_rng(seed)
    precision, found = (
        generator.beta(each.hits + 0.5, each.cases - each.hits + 0.5, DRAWS)
        for each in (at_zero.reviewed, recall)
    )
    return at_zero.num_above * precision / found
