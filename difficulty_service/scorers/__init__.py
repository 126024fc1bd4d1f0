"""Scorers: features and labels in, one score per sample out; larger is harder.

`SCORERS` says what each is and which columns it fills. The command line, Python, the service and
its pages read it; nothing heavy is imported here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scorer:
    """What can be asked for by one name.

    Attributes:
        name: Name by which it is asked for.
        sentence: What it finds, for people who choose.
        columns: Columns of a score file that it fills.
        holds_features: Whether it holds all features in memory, and needs the package faiss.
    """

    name: str
    sentence: str
    columns: tuple[str, ...]
    holds_features: bool = False


SCORERS = {
    scorer.name: scorer
    for scorer in (
        Scorer(
            "rmd",
            "relative Mahalanobis distance: hard whatever its label; always computed",
            ("md", "md_agnostic", "rmd", "rmd_loo", "nearest_label", "label_margin", "percentile"),
        ),
        Scorer(
            "suspicion",
            "log-odds that the label is wrong, and the class it may be instead",
            ("suspicion", "label_probability", "suspected_label"),
        ),
        Scorer("agree", "log-odds against the label, in line with what people doubt", ("agree",)),
        Scorer("kmeans", "distance to the nearest centre", ("kmeans",), holds_features=True),
        Scorer("knn", "distance to the nearest neighbours", ("knn",), holds_features=True),
    )
}
"""Every scorer by its name."""
