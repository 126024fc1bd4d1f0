"""How given tags come about: how many are wrong, how many are missing, and how sure evidence is."""

import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

FEWEST_SURE = 50
"""Decisions from which on the surest ones tell how many tags are wrong or missing."""

HINGE = -1.0
"""Log-odds at which the link from evidence to probability changes its slope."""

SMALLEST = 1e-9
"""Probability that nothing is below."""


@dataclass(frozen=True)
class TagErrors:
    """How given tags come about: most are right, some are wrong, and some that belong are missing.

    Attributes:
        wrong: Share of the given tags that are wrong.
        missing: Share of the tags that belong to samples which is not given.
        offset: Log-odds that a tag belongs to a sample where the evidence is at HINGE.
        slope_below: Factor on the evidence below HINGE.
        slope_above: The same above it.
    """

    wrong: float
    missing: float
    offset: float
    slope_below: float
    slope_above: float

    def log_odds(self, evidence: Tensor) -> Tensor:
        """Log-odds that tags belong to samples, whether they are given or not; as the evidence."""
        below, above = (evidence - HINGE).clamp(max=0), (evidence - HINGE).clamp(min=0)
        return self.offset + self.slope_below * below + self.slope_above * above

    def log_odds_of_error(self, evidence: Tensor, has: Tensor, shares: Tensor) -> Tensor:
        """Log-odds that a given tag is wrong, or that one which is not given belongs there.

        Args:
            evidence: As the result of shape (samples, tags).
            has: Whether the tag is given.
            shares: Share of the samples with each tag. Shape (tags,).
        """
        odds = self.log_odds(evidence)
        by_mistake = _by_mistake(self.wrong, self.missing, shares)
        if_given = by_mistake.log() - math.log1p(-self.missing) - odds
        if_not = odds + math.log(self.missing) - torch.log1p(-by_mistake)
        return torch.where(has, if_given, if_not)


def _by_mistake(wrong: float, missing: float, shares: Tensor) -> Tensor:
    """Probability that a tag is given to a sample that it does not belong to. Shape (tags,)."""
    belongs = (shares * (1 - wrong) / (1 - missing)).clamp(SMALLEST, 1 - SMALLEST)
    return (wrong * shares / (1 - belongs)).clamp(SMALLEST, 1 - SMALLEST)


def fit_errors(evidence: Tensor, has: Tensor, shares: Tensor) -> TagErrors:
    """How many tags are wrong and missing, and how probable tags are by the evidence.

    Of the decisions that the evidence is surest about, nearly all that differ are errors, however
    the evidence is to be read. So the share of tags that are missing is read off where a tag surely
    belongs, and the share of wrong ones where it surely does not: each is the smallest of those
    among the 50, 100, 200 … surest decisions, with its standard error. The link between evidence
    and probability is then the one under which all decisions are most probable.

    Args:
        evidence: Log-odds of each tag, left out of the fit. Float64, shape (samples, tags).
        has: Whether it is given. Shape (samples, tags).
        shares: Share of the samples with each tag. Shape (tags,).
    """
    order = evidence.flatten().argsort(descending=True).numpy()
    given = has.flatten().numpy()[order]
    expected = shares.expand_as(evidence).flatten().numpy()[order]
    missing = _smallest_share(~given, np.ones(len(given)))
    wrong = _smallest_share(given[::-1], expected[::-1])
    by_mistake = _by_mistake(wrong, missing, shares)
    moved = evidence - HINGE

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        numbers = torch.from_numpy(values.copy()).requires_grad_()
        below, above = moved.clamp(max=0), moved.clamp(min=0)
        log_odds = numbers[0] + numbers[1].exp() * below + numbers[2].exp() * above
        belongs = log_odds.sigmoid()
        is_given = belongs * (1 - missing) + (1 - belongs) * by_mistake
        total = -torch.where(has, is_given, 1 - is_given).clamp(min=SMALLEST).log().mean()
        total.backward()
        gradient = numbers.grad
        return float(total.detach()), np.zeros(3) if gradient is None else gradient.numpy()

    found = scipy.optimize.minimize(
        loss, np.array([HINGE, 0.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(-20, 20)] * 3
    ).x
    return TagErrors(wrong, missing, float(found[0]), *np.exp(found[1:]).tolist())


def _smallest_share(errors: NDArray[np.bool_], sizes: NDArray[np.float64]) -> float:
    """Smallest share of errors with its standard error among the first decisions, of some sizes."""
    total, among = errors.cumsum(), sizes.cumsum()
    ends = []
    size = float(FEWEST_SURE)
    while size <= among[-1]:
        ends.append(int(np.searchsorted(among, size)))
        size *= 2
    ends.append(len(errors) - 1)
    number = total[ends].astype(np.float64)
    shares = (number + np.sqrt(number) + 1) / among[ends]
    return float(np.clip(shares.min(), SMALLEST, 0.5))
