"""Conditions of a list of samples with their scores."""

from typing import TypedDict


class ScoreFilter(TypedDict, total=False):
    """Which samples are listed.

    Attributes:
        label: Name or index of a class.
        near: Class that fits best, or a part of its name.
        pmin: Lowest percentile of difficulty, 0 to 100.
        pmax: Highest percentile of difficulty.
        margin: Suspicion, or margin where there is none, to be exceeded.
        q: Text in the sample id.
        mark: none, any, keep, relabel, drop, misplaced, disagree, tie or final.
        verified: `only`: decided in an earlier round; `all` (default): whatever was decided.
        area: Corners of an area of the map.
        like: Row of a sample that they are like.
        text: Words, of which the closest samples are listed.
        share: One of several shares, such as 1of3.
    """

    label: str
    near: str
    pmin: str
    pmax: str
    margin: str
    q: str
    mark: str
    verified: str
    area: str
    like: str
    text: str
    share: str
