"""The three tiers of labels, and how many labels are in each, in one sentence or two."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from difficulty_service.base.wording import count_of, is_or_are
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
        judged: Number of samples with a suspicion, verified ones among them.
        wrong: Number of those whose label is more likely wrong than right: suspicion above 0.
        between: Number of the others that look more like another class: label margin above 0.
        shares: Ends of the 95 % interval of the share of wrong labels, as they were given; None
            where it is not known.
        verified: Number of labels that a person has verified.
        relabelled: Number of those that were wrong.
    """

    judged: int
    wrong: int
    between: int
    shares: tuple[float, float] | None
    verified: int = 0
    relabelled: int = 0

    @property
    def doubted(self) -> int:
        """Number of samples with a suspicion whose label nobody has verified."""
        return self.judged - self.verified

    @property
    def left(self) -> tuple[int, int] | None:
        """Ends of the 95 % interval of the number of wrong labels that nobody has found yet."""
        if self.shares is None:
            return None
        low, high = (share * self.judged for share in self.shares)
        numbers = (number - self.relabelled for number in (math.floor(low), math.ceil(high)))
        fewest, most = (min(max(0, number), self.doubted) for number in numbers)
        return fewest, most

    @property
    def of_which(self) -> str:
        """The labels that are counted."""
        if not self.verified:
            return f"of {self.judged:,} labels"
        return f"of the {self.doubted:,} labels that nobody has verified"

    def __str__(self) -> str:
        return (
            f"{self.wrong:,} {self.of_which} {is_or_are(self.wrong)} {WRONG} (p_wrong above 1/2), "
            f"{self.beside}"
        )

    @property
    def beside(self) -> str:
        """What is to say besides how many labels are almost certainly wrong."""
        fit = self.doubted - self.wrong - self.between
        kinds = (
            f"{self.between:,} {is_or_are(self.between)} {BETWEEN} (another one looks nearer, but "
            f"ambiguity explains it), and {fit:,} {FITS if fit == 1 else 'fit'}."
        )
        if self.left is None:
            return kinds
        low, high = self.left
        found = " and not found yet" if self.verified else ""
        if low:
            some = f"At least {count_of(low, 'label')} {is_or_are(low)} wrong{found}"
        else:
            some = f"It may be that no {'other ' if self.verified else ''}label is wrong"
        return f"{kinds} {some} (95 % interval {low:,} to {high:,})."


def shares_of_wrong(fit: LabelRuleFit | None) -> tuple[float, float] | None:
    """The 95 % interval of the fit of `suspicion`; None where nothing was fitted for it."""
    if fit is None or fit.noise_wrong_low is None or fit.noise_wrong_high is None:
        return None
    return fit.noise_wrong_low, fit.noise_wrong_high
