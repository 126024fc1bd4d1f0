"""The tiers of labels: their names, and the probability of being wrong from which each begins.

Every sentence, column, page and count takes both from here.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

PROBABLY_WRONG, BETWEEN, FITS = "probably wrong", "between two classes", "fits"
TIERS = PROBABLY_WRONG, BETWEEN, FITS
"""The tiers: `p_wrong` above PROBABLE; of the others, `label_margin` above 0; the rest."""

ALMOST_CERTAINLY = "almost certainly"
ALMOST_CERTAINLY_WRONG = f"{ALMOST_CERTAINLY} wrong"
"""The clearest labels of the first tier: `p_wrong` above ALMOST_CERTAIN."""

PROBABLE, ALMOST_CERTAIN = 0.5, 0.95
"""The values of `p_wrong` that labels of the first tier, and the clearest of them, exceed."""

PROBABLE_SUSPICION, ALMOST_CERTAIN_SUSPICION = (
    math.log(p_wrong / (1 - p_wrong)) for p_wrong in (PROBABLE, ALMOST_CERTAIN)
)
"""The same thresholds of `suspicion`, the log-odds of `p_wrong`; the first is 0."""

CONDITIONS = {
    PROBABLY_WRONG: f"p_wrong > {PROBABLE:g}",
    ALMOST_CERTAINLY_WRONG: f"p_wrong > {ALMOST_CERTAIN:g}",
}
"""The conditions on columns of a score file that have the name of a tier."""

Evidence: TypeAlias = Literal["label_margin", "suspicion"]
"""A column that is above 0 where a sample looks more like another class."""


def evidence_of(num_suspicious: int) -> Evidence:
    """The column by which labels are listed that a person should check.

    Where no label is probably wrong, those between two classes are left to look at.
    """
    return "suspicion" if num_suspicious else "label_margin"


@dataclass(frozen=True)
class Reliability:
    """How many labels of a tier were wrong where that is known, as docs/evidence/counts.csv has it.

    Attributes:
        share: Share of all of them that were wrong.
        low: The same of the set of labels where it is smallest.
        high: The same of the set of labels where it is largest.
    """

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.share:.0%} were wrong ({100 * self.low:.0f} to {self.high:.0%} by dataset)"


RELIABILITY = {
    PROBABLY_WRONG: Reliability(0.84, 0.58, 0.98),
    ALMOST_CERTAINLY_WRONG: Reliability(0.96, 0.62, 1.0),
}
NUM_SETS = 29
"""Number of sets of labels that these are of."""

HOW_SURE = (
    f"In {NUM_SETS} sets of labels with known errors, of the labels called {PROBABLY_WRONG} "
    f"{RELIABILITY[PROBABLY_WRONG]}, and of those called {ALMOST_CERTAINLY_WRONG} "
    f"{RELIABILITY[ALMOST_CERTAINLY_WRONG]}."
).replace("%", " %")
"""How far to trust the tiers, in a sentence."""
