"""Where a slope falls through zero."""

import math
from collections.abc import Callable

Slopes = Callable[[float], tuple[float, float]]
"""Gives the value and the derivative of a function at a place."""

MOST_STEPS = 200


def falling_root(slopes: Slopes, ends: tuple[float, float], start: float, accuracy: float) -> float:
    """The root of a function that falls between two ends, or the end that it falls towards.

    By Newton's steps until one is at most as long as the accuracy, which is then far exceeded. One
    that leads out of the interval that holds the root goes to its middle, or to an end that was not
    looked at. A function that also rises has one of its roots found.
    """
    (low, high), place = ends, start
    new_ends = set(ends)
    for _ in range(MOST_STEPS):
        value, slope = slopes(place)
        if value == 0 or place == ends[value > 0]:
            return place
        low, high = (place, high) if value > 0 else (low, place)
        following = place - value / slope if slope < 0 else math.nan
        if abs(following - place) <= accuracy or high - low <= accuracy:
            break
        if not low < following < high:
            end = low if following <= low else high
            following = end if end in new_ends else (low + high) / 2
        new_ends.discard(following)
        place = following
    return place
