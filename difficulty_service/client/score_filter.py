"""Conditions of a list of samples; written by `python docs/conditions.py`."""

from typing import TypedDict


class ScoreFilter(TypedDict, total=False):
    """Which samples are listed.

    Attributes:
        label: Name or index.
        near: Class that fits best, or a part of its name.
        pmin: Lowest percentile of difficulty, 0 to 100.
        pmax: Highest percentile of difficulty.
        margin: Suspicion (or margin, without it) to be exceeded.
        p_wrong: Probability of a wrong label to be exceeded, 0 to 1.
        q: Text in the sample id.
        mark: none, any, keep, relabel, drop, misplaced, disagree, tie or final.
        verified: only or all: decided in an earlier round, or whatever.
        area: Corners on the map: x_y_x_y_x_y, as its page writes them.
        like: Row of a sample that they are like, with itself.
        text: Words, of which the 200 closest samples are listed.
        share: One of several shares by sample id: 1of3, 2of3 or 3of3.
    """

    label: str
    near: str
    pmin: str
    pmax: str
    margin: str
    p_wrong: str
    q: str
    mark: str
    verified: str
    area: str
    like: str
    text: str
    share: str
