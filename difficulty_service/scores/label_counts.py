"""How many labels are in each tier and how many are wrong, in one sentence or two."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from difficulty_service.base.wording import count_of, is_or_are
from difficulty_service.scores.provenance import LabelRuleFit, RandomCheck
from difficulty_service.scores.random_checks import LEVEL, describe_check
from difficulty_service.scores.tiers import (
    ALMOST_CERTAIN,
    ALMOST_CERTAINLY,
    BETWEEN,
    FITS,
    PROBABLY_WRONG,
)

FIT_ERROR = 0.85
"""Part of the lower end of the fit that is stated as a lower bound.

The interval of the fit knows no error of its model: in docs/evidence/counts.csv its lower end is up
to 1.13 times the number of labels that are known to be wrong.
"""


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


def describe_share(wrong: Proportion) -> str:
    """How many labels were wrong of those that a person looked at one by one, in a sentence.

    They were chosen by their scores, so that they say nothing about the others.
    """
    return (
        f"{wrong.hits:,} of the {wrong.cases:,} labels that were checked one by one "
        f"{is_or_are(wrong.hits)} wrong."
    )


@dataclass(frozen=True)
class LabelCounts:
    """How many labels are of which kind.

    Attributes:
        judged: Number of samples with a suspicion, verified ones among them.
        wrong: Number of those whose label is probably wrong: suspicion above 0.
        certain: Number of those whose label is almost certainly wrong.
        between: Number of the others that look more like another class: label margin above 0.
        shares: Ends of the 95 % interval of the share of wrong labels, as they were given; None
            where it is not known.
        verified: Number of labels that a person has verified.
        relabelled: Number of those that were wrong.
        check: What a random choice of them says; None without one.
        dropped_unseen: Number of other samples that a condition dropped before.
    """

    judged: int
    wrong: int
    certain: int
    between: int
    shares: tuple[float, float] | None
    verified: int = 0
    relabelled: int = 0
    check: RandomCheck | None = None
    dropped_unseen: int = 0

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
        """Ends of the interval of the fit for the wrong labels that nobody has found yet.

        Only the lower one is a bound: people err where images are ambiguous, and what they dropped
        unseen is missing from the fit.
        """
        if self.shares is None:
            return None
        low, high = (share * self.judged - self.relabelled for share in self.shares)
        numbers = (math.floor(FIT_ERROR * low), math.ceil(high))
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
            f"{self.wrong:,} {self.of_which} {is_or_are(self.wrong)} {PROBABLY_WRONG} (p_wrong "
            f"above 1/2){self._of_which_certain}, {self.beside}"
        )

    @property
    def _of_which_certain(self) -> str:
        """How many of the labels that are probably wrong almost certainly are."""
        if not self.wrong:
            return ""
        return f", {self.certain:,} of them {ALMOST_CERTAINLY} (above {ALMOST_CERTAIN:g})"

    @property
    def beside(self) -> str:
        """What is to say besides how many labels are probably wrong."""
        labels = "label" if self.between == 1 else "labels"
        kinds = (
            f"{self.between:,} {is_or_are(self.between)} {BETWEEN} (ambiguous: the {labels} may "
            f"still be right), and {self.fit:,} {FITS if self.fit == 1 else 'fit'}."
        )
        return " ".join(filter(None, (kinds, self.number_wrong)))

    @property
    def number_wrong(self) -> str:
        """How many labels are wrong, as far as that is known, in sentences; else empty.

        An interval is given only where people looked at labels in a random order.
        """
        if self.check is not None:
            return describe_check(self.check)
        low = 0 if self.left is None else self.left[0]
        found = " and not found yet" if self.verified or self.dropped_unseen else ""
        sentences = []
        if low:
            sentences.append(f"At least {count_of(low, 'label')} {is_or_are(low)} wrong{found}.")
        elif self.left is not None and not self.dropped_unseen:
            sentences.append(f"There may be no {'other ' if self.verified else ''}wrong labels.")
        if self.dropped_unseen:
            was = "was" if self.dropped_unseen == 1 else "were"
            sentences.append(
                f"{count_of(self.dropped_unseen, 'sample')} {was} dropped by a condition, without "
                "a look at each. The estimate no longer sees errors like these: only labels "
                "checked in a random order tell how many are left."
            )
        return " ".join(sentences)


def shares_of_wrong(fit: LabelRuleFit | None) -> tuple[float, float] | None:
    """The 95 % interval of the fit of `suspicion`; None where nothing was fitted for it."""
    if fit is None or fit.noise_wrong_low is None or fit.noise_wrong_high is None:
        return None
    return fit.noise_wrong_low, fit.noise_wrong_high
