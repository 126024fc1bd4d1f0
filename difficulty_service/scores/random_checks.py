"""How many labels are wrong, by those that people looked at in a random order.

The intervals are exact: they hold the number at least as often as they say, however few labels
were looked at. `stored_marks.js` computes the same in a report.
"""

import math

from difficulty_service.base.wording import count_of, is_or_are
from difficulty_service.scores.provenance import RandomCheck

LEVEL = 0.95
"""Probability that an interval holds what it is of."""

ENOUGH = 50
"""Labels that people are asked to look at in a random order."""


def wrong_among(total: int, checked: int, wrong: int) -> tuple[int, int]:
    """The 95 % interval of the number of wrong labels, from a random choice of them.

    Its ends are the fewest and the most wrong labels of which the choice would have as many, or
    more, or fewer, in 2.5 % of all choices (Clopper and Pearson, 1934, without replacement).

    Args:
        total: Number of labels.
        checked: Number of those that were chosen.
        wrong: Number of these that are wrong.

    Returns:
        The fewest and the most, those that were chosen included.
    """
    return _fewest(total, checked, wrong), total - _fewest(total, checked, checked - wrong)


def _fewest(total: int, checked: int, wrong: int) -> int:
    """The fewest wrong labels of which a choice has so many or more often enough."""
    low, high = wrong, total - (checked - wrong)
    while low < high:
        middle = (low + high) // 2
        if _has_so_many(total, checked, wrong, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _has_so_many(total: int, checked: int, wrong: int, all_wrong: int) -> bool:
    """Whether a choice has so many or more wrong labels with a probability of 2.5 % or more."""
    right, tail = total - all_wrong, (1 - LEVEL) / 2
    if wrong * total <= all_wrong * checked:  # so many are expected
        return True
    term = math.exp(
        _log_choices(all_wrong, wrong)
        + _log_choices(right, checked - wrong)
        - _log_choices(total, checked)
    )
    probability = term
    for number in range(wrong, min(checked, all_wrong)):
        # The probability of one more wrong label, from that of so many.
        term *= (all_wrong - number) * (checked - number)
        term /= (number + 1) * (right - checked + number + 1)
        probability += term
        if probability >= tail:
            break
    return probability >= tail


def _log_choices(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def left_at_random(check: RandomCheck) -> tuple[int, int, int]:
    """How many wrong labels nobody has found, by a random choice, and its 95 % interval.

    The other labels that people looked at in the same round may have been looked at before the
    random ones, which were then chosen from the rest, or after them. The interval holds for both.
    """
    shares, ends = list[float](), list[int]()
    for among, found in (
        (check.among, check.since),  # the random ones first
        (check.among - check.beside, check.since - check.wrong_beside),
    ):
        others = among - check.checked
        fewest, most = wrong_among(among, check.checked, check.wrong)
        share = check.wrong / check.checked if check.checked else 0.0
        shares.append(max(0.0, share * others - found))
        ends += [max(0, end - check.wrong - found) for end in (fewest, most)]
    return round(sum(shares) / len(shares)), min(ends), max(ends)


def describe_check(check: RandomCheck) -> str:
    """What a random choice of the labels says, in a sentence."""
    likely, low, high = left_at_random(check)
    return (
        f"Of {count_of(check.checked, 'label')} in a random order, {check.wrong:,} "
        f"{'was' if check.wrong == 1 else 'were'} wrong, so that about {count_of(likely, 'label')} "
        f"{is_or_are(likely)} wrong and not found yet (95 % interval {low:,} to {high:,})."
    )
