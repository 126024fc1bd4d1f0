"""The three tiers of labels, and how many labels are in each, in one sentence or two."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from difficulty_service.base.wording import is_or_are
from difficulty_service.scores.provenance import LabelRuleFit

WRONG, BETWEEN, FITS = "almost certainly wrong", "between two classes", "fits"
"""The tiers: `p_wrong` above 1/2; of the others, `label_margin` above 0; the rest."""

Evidence: TypeAlias = Literal["label_margin", "suspicion"]
"""A column that is above 0 where a sample looks more like another class."""


def evidence_of(num_suspicious: int) -> Evidence:
    """The column by which labels are listed that a person should check.

    Where no label is almost certainly wrong, those between two classes are left to look at.
    """
    return "suspicion" if num_suspicious else "label_margin"


@dataclass(frozen=True)
class LabelCounts:
    """How many labels are of which kind.

    Attributes:
        judged: Number of samples with a suspicion.
        wrong: Number of those whose label is more likely wrong than right: suspicion above 0.
        between: Number of the others that look more like another class: label margin above 0.
        shares: Ends of the 95 % interval of the share of wrong labels; None where it is not known.
    """

    judged: int
    wrong: int
    between: int
    shares: tuple[float, float] | None

    def __str__(self) -> str:
        return (
            f"{self.wrong:,} of {self.judged:,} labels {is_or_are(self.wrong)} {WRONG} (p_wrong "
            f"above 1/2), {self.beside}"
        )

    @property
    def beside(self) -> str:
        """What is to say besides how many labels are almost certainly wrong."""
        fit = self.judged - self.wrong - self.between
        kinds = (
            f"{self.between:,} {is_or_are(self.between)} {BETWEEN} (another one looks nearer, but "
            f"ambiguity explains it), and {fit:,} {FITS if fit == 1 else 'fit'}."
        )
        if self.shares is None:
            return kinds
        low = math.floor(self.shares[0] * self.judged)
        high = math.ceil(self.shares[1] * self.judged)
        some = (
            f"At least {low:,} {'label is' if low == 1 else 'labels are'} wrong"
            if low
            else "It may be that no label is wrong"
        )
        return f"{kinds} {some} (95 % interval {low:,} to {high:,})."


def shares_of_wrong(fit: LabelRuleFit | None) -> tuple[float, float] | None:
    """The 95 % interval of the fit of `suspicion`; None where nothing was fitted for it."""
    if fit is None or fit.noise_wrong_low is None or fit.noise_wrong_high is None:
        return None
    return fit.noise_wrong_low, fit.noise_wrong_high
