"""The three tiers of labels, and how many labels are in each, in one sentence or two."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

from difficulty_service.base.wording import count_of, is_or_are
from difficulty_service.scores.provenance import LabelRuleFit, RandomCheck

TIERS = WRONG, BETWEEN, FITS = "almost certainly wrong", "between two classes", "fits"
"""The tiers: `p_wrong` above 1/2; of the others, `label_margin` above 0; the rest."""

Evidence: TypeAlias = Literal["label_margin", "suspicion"]
"""A column that is above 0 where a sample looks more like another class."""


def evidence_of(num_suspicious: int) -> Evidence:
    """The column by which labels are listed that a person should check.

    Where no label is almost certainly wrong, those between two classes are left to look at.
    """
    return "suspicion" if num_suspicious else "label_margin"


LEVEL = 0.95
"""Probability that an interval holds what it is of."""


@dataclass(frozen=True)
class Proportion:
    """A share of cases, counted."""

    hits: int
    cases: int

    @property
    def share(self) -> float:
        """The share; NaN without cases."""
        return self.hits / self.cases if self.cases else float("nan")

    def interval(self) -> tuple[float, float]:
        """Wilson interval of the share at 95 %; from 0 to 1 without cases."""
        if not self.cases:
            return 0.0, 1.0
        # Not by scipy.stats, which takes 40 MB that the web server needs for nothing else.
        z = NormalDist().inv_cdf((1 + LEVEL) / 2)
        total = self.cases + z**2
        centre = (self.hits + z**2 / 2) / total
        half = z / total * math.sqrt(self.hits * (self.cases - self.hits) / self.cases + z**2 / 4)
        return max(0.0, centre - half), min(1.0, centre + half)


def left_at_random(check: RandomCheck) -> tuple[int, int, int]:
    """How many wrong labels nobody has found, by a random choice, and its 95 % interval."""
    found, others = Proportion(check.wrong, check.checked), check.among - check.checked
    likely, low, high = (
        max(0, round(share * others) - check.since) for share in (found.share, *found.interval())
    )
    return likely, low, high


def describe_share(wrong: Proportion) -> str:
    """How many labels were wrong of those that a person looked at one by one, in a sentence."""
    low, high = (round(100 * end) for end in wrong.interval())
    return (
        f"{round(100 * wrong.share)} % of the {wrong.cases:,} labels that were checked one by one "
        f"are wrong (95 % interval {low} to {high} %)."
    )


def describe_check(check: RandomCheck) -> str:
    """What a random choice of the labels says, in a sentence."""
    likely, low, high = left_at_random(check)
    return (
        f"Of {count_of(check.checked, 'label')} in a random order, {check.wrong:,} "
        f"{'was' if check.wrong == 1 else 'were'} wrong, so that about {count_of(likely, 'label')} "
        f"{is_or_are(likely)} wrong and not found yet (95 % interval {low:,} to {high:,})."
    )


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
        check: What a random choice of them says; None without one.
    """

    judged: int
    wrong: int
    between: int
    shares: tuple[float, float] | None
    verified: int = 0
    relabelled: int = 0
    check: RandomCheck | None = None

    @property
    def doubted(self) -> int:
        """Number of samples with a suspicion whose label nobody has verified."""
        return self.judged - self.verified

    @property
    def fit(self) -> int:
        """Number of those that are in neither of the tiers before."""
        return self.doubted - self.wrong - self.between

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
        labels = "label" if self.between == 1 else "labels"
        kinds = (
            f"{self.between:,} {is_or_are(self.between)} {BETWEEN} (ambiguous: the {labels} may "
            f"still be right), and {self.fit:,} {FITS if self.fit == 1 else 'fit'}."
        )
        if self.check is not None:
            return f"{kinds} {self.found_at_random}"
        if self.left is None:
            return kinds
        low, _ = self.left  # people err where images are ambiguous, which the upper end leaves out
        found = " and not found yet" if self.verified else ""
        if low:
            some = f"At least {count_of(low, 'label')} {is_or_are(low)} wrong{found}"
        else:
            some = f"There may be no {'other ' if self.verified else ''}wrong labels"
        return f"{kinds} {some}."

    @property
    def found_at_random(self) -> str:
        """What a random choice says, in a sentence; empty without one."""
        return "" if self.check is None else describe_check(self.check)


def shares_of_wrong(fit: LabelRuleFit | None) -> tuple[float, float] | None:
    """The 95 % interval of the fit of `suspicion`; None where nothing was fitted for it."""
    if fit is None or fit.noise_wrong_low is None or fit.noise_wrong_high is None:
        return None
    return fit.noise_wrong_low, fit.noise_wrong_high
