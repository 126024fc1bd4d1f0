"""Scorers: features and labels in, one score per sample out; larger is harder.

`SCORERS` says what each is and which columns it fills. The command line, Python, the service and
its pages read it; nothing heavy is imported here.
"""

from dataclasses import dataclass

from difficulty_service.errors import Setting
from difficulty_service.score_columns import COMPUTED_BY


@dataclass(frozen=True)
class Scorer:
    """What can be asked for by one name.

    Attributes:
        name: Name by which it is asked for.
        sentence: What it finds, for people who choose.
        holds_features: Whether it holds all features in memory, and needs the package faiss.
    """

    name: str
    sentence: str
    holds_features: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a score file that it fills."""
        asked = Setting("scorers", self.name)
        return tuple(name for name, remedy in COMPUTED_BY.items() if asked in remedy)


SCORERS = {
    scorer.name: scorer
    for scorer in (
        Scorer("rmd", "relative Mahalanobis distance: hard whatever its label; always computed"),
        Scorer("suspicion", "log-odds that the label is wrong, and the class it may be instead"),
        Scorer("agree", "log-odds against the label, in line with what people doubt"),
        Scorer("kmeans", "distance to the nearest centre", holds_features=True),
        Scorer("knn", "distance to the nearest neighbours", holds_features=True),
    )
}
"""Every scorer by its name."""
