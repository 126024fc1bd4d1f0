"""Ways to choose samples from a pool, by the names under which they are asked for.

`STRATEGIES` lists them; what chooses is imported when it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Strategy:
    """A way to choose samples.

    Attributes:
        sentence: What is chosen, for people who choose among the strategies.
        choose: `module:function` of a `pool.Choose`.
        reads: What of the pool it needs besides `free`.
    """

    name: str
    sentence: str
    choose: str
    reads: Literal["nothing", "scores", "features"]


_HERE = "difficulty_service.scorers"

STRATEGIES: Mapping[str, Strategy] = {
    each.name: each
    for each in (
        Strategy("random", "any samples", f"{_HERE}.pool:choose_random", "nothing"),
        Strategy("hard", "the largest scores", f"{_HERE}.pool:choose_hard", "scores"),
        Strategy("easy", "the smallest scores", f"{_HERE}.pool:choose_easy", "scores"),
        Strategy(
            "typical",
            "the densest sample of each cluster in turn",
            f"{_HERE}.typical:choose_typical",
            "features",
        ),
        Strategy(
            "diverse",
            "the sample farthest from all chosen ones (k-centre)",
            f"{_HERE}.farthest_first:choose_farthest",
            "features",
        ),
    )
}
"""Every strategy by its name."""
