"""How many labels are wrong, by maximum likelihood, where each label has three explanations.

A label is right, or names a class by chance, or follows what was seen. A share of the labels is
`wrong`; of those a share, `seen`, follows what was seen.

Both shares are roots of slopes: of `seen` for a fixed share of wrong labels, where the likelihood
is concave, and of the share of wrong labels with the likeliest `seen`, from FEW_WRONG on: there may
be a second peak at which most labels are wrong. Nothing here calls BLAS,
whose threads wait for each other much longer than these sums take.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from difficulty_service.gaussians.roots import falling_root

RIGHT_BEFORE, BY_CHANCE_BEFORE, SEEN_BEFORE = 25.0, 20.0, 10.0
"""Labels that the shares are estimated from besides the given ones: some are right, and some wrong
by chance or by what was seen. Else a pair of classes of its own could explain each strange label
of few."""

MOST_BY_CHANCE_BEFORE = 100.0
"""With more, the likeliest share of wrong labels of a hundred classes may be 0 where a third are
wrong."""

ENDS_OF_WRONG, ENDS_OF_LOGIT = (2e-9, 1 - 5e-5), (-10.0, 10.0)
"""Of the searches for the share of wrong labels and for the logit of `seen`."""

FEW_WRONG = 0.05
"""Where the search for the share of wrong labels begins."""

CHI_SQUARED_95 = 3.841458820694124
"""Twice the log-likelihood that is lost at both ends of a 95 % interval."""

ACCURACY = 1e-11
"""Of the roots."""


def by_chance_before(classes: int) -> float:
    """BY_CHANCE_BEFORE for up to ten classes, and for more in proportion to their pairs."""
    pairs = max(1.0, (classes / 10) ** 2)
    return min(BY_CHANCE_BEFORE * pairs, MOST_BY_CHANCE_BEFORE)


@dataclass(frozen=True)
class Explained:
    """Labels, and how probable each explanation makes them.

    Attributes:
        probabilities: If they are right, wrong by chance, or as was seen. The last may be negative
            where labels that are as was seen are wrong more often than others; all three together
            are not, up to the largest share of wrong labels. Shape (3, labels).
        by_chance_before: Labels wrong by chance that are known besides.
        most_wrong: Largest share of wrong labels.
    """

    probabilities: NDArray[np.float64]
    by_chance_before: float
    most_wrong: float = ENDS_OF_WRONG[1]


@dataclass(frozen=True)
class Shares:
    """Shares of explanations, and the log-probability of the labels and of these shares.

    The log-probability is up to a constant, in nats. `logit` is that of `seen`.
    """

    wrong: float
    logit: float
    log_likelihood: float

    @property
    def seen(self) -> float:
        """Share of the wrong labels that follow what was seen."""
        return _expit(self.logit)


def likeliest_shares(labels: Explained) -> Shares:
    """The likeliest shares, by these labels and those that are known besides."""
    right, by_chance, followed = labels.probabilities
    logit = 0.0

    def slopes(wrong: float) -> tuple[float, float]:
        """First and second derivative by the share of wrong labels, with the likeliest `seen`."""
        nonlocal logit
        logit = _likeliest_logit(labels, wrong, logit)
        seen = _expit(logit)
        flipped = (1 - seen) * by_chance + seen * followed
        total = (1 - wrong) * right + wrong * flipped
        by_wrong, by_seen = (flipped - right) / total, (followed - by_chance) / total
        first = float(by_wrong.sum()) - RIGHT_BEFORE / (1 - wrong)
        second = -float(np.square(by_wrong).sum()) - RIGHT_BEFORE / (1 - wrong) ** 2
        mixed = float(by_seen.sum()) - wrong * float((by_wrong * by_seen).sum())
        of_seen = wrong**2 * float(np.square(by_seen).sum())
        of_seen += labels.by_chance_before / (1 - seen) ** 2 + SEEN_BEFORE / seen**2
        return first, second + mixed**2 / of_seen

    ends = ENDS_OF_WRONG[0], labels.most_wrong
    wrong = falling_root(slopes, ends, min(FEW_WRONG, labels.most_wrong / 2), ACCURACY)
    return _at(labels, wrong, logit)


def interval(fits: Sequence[tuple[Explained, Shares]]) -> tuple[float, float]:
    """Ends of a 95 % interval of the share of wrong labels, by the likelihood of the labels.

    A share is in it if it is likely enough with any `seen`, by any of some explanations, each with
    their likeliest shares.
    """
    fits = sorted(fits, key=lambda fit: -fit[1].log_likelihood)
    least = fits[0][1].log_likelihood - CHI_SQUARED_95 / 2
    low = high = fits[0][1].wrong
    for labels, found in fits:
        if found.log_likelihood < least:
            break
        excess = partial(_excess, labels, least)
        low = _end(excess, min(low, found.wrong), 0.0)
        high = _end(excess, max(high, found.wrong), labels.most_wrong)
    return low, high


def _excess(labels: Explained, least: float, wrong: float) -> float:
    return _at(labels, wrong).log_likelihood - least


def _end(excess: Callable[[float], float], reached: float, outermost: float) -> float:
    """Where an excess falls below zero between a share that others reach and the outermost one."""
    if excess(reached) < 0:
        return reached
    if excess(outermost) >= 0:
        return outermost
    return float(scipy.optimize.brentq(excess, reached, outermost, xtol=1e-6))


def _at(labels: Explained, wrong: float, logit: float = 0.0) -> Shares:
    """The likeliest shares with this one of wrong labels; the search begins at a logit."""
    right, by_chance, followed = labels.probabilities
    logit = _likeliest_logit(labels, wrong, logit)
    seen = _expit(logit)
    total = (1 - wrong) * right + wrong * ((1 - seen) * by_chance + seen * followed)
    known = RIGHT_BEFORE * math.log1p(-wrong) + labels.by_chance_before * math.log1p(-seen)
    known += SEEN_BEFORE * math.log(seen)
    return Shares(wrong, logit, float(np.log(total).sum()) + known)


def _likeliest_logit(labels: Explained, wrong: float, start: float) -> float:
    """The logit of the likeliest share of wrong labels that follow what was seen."""
    right, by_chance, followed = labels.probabilities
    rest = (1 - wrong) * right + wrong * by_chance
    change = wrong * (followed - by_chance)

    def slopes(logit: float) -> tuple[float, float]:
        seen = _expit(logit)
        ratio = change / (rest + seen * change)
        by_labels = seen * (1 - seen) * float(ratio.sum())
        curve = by_labels * (1 - 2 * seen)
        curve -= (seen * (1 - seen)) ** 2 * float(np.square(ratio).sum())
        curve -= (SEEN_BEFORE + labels.by_chance_before) * seen * (1 - seen)
        return by_labels + SEEN_BEFORE * (1 - seen) - labels.by_chance_before * seen, curve

    return falling_root(slopes, ENDS_OF_LOGIT, start, ACCURACY)


def _expit(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
