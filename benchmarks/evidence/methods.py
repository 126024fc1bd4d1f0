"""Ways to score samples by features and given labels: this project's columns and those of peers.

Every method gets the same features. Scores are larger where a label should be wrong.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence import peers
from benchmarks.evidence.samples import Samples, Verdict
from difficulty_service.interface.score import score

CUT = 0.0
"""Where the project's margins and log-odds say that another class fits better."""


@dataclass(frozen=True)
class OwnColumns:
    """A scorer of this project, as a method.

    Attributes:
        scorer: Name for `--scorers`.
        columns: Columns to keep, and whether 0 is a cut of theirs.
    """

    scorer: str
    columns: dict[str, bool] = field(default_factory=dict)

    def __call__(self, samples: Samples) -> Verdict:
        """Scores the samples."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what a reader of a file should know
            scores = score(samples.features, samples.labels, scorers=(self.scorer,))
        found: dict[str, NDArray[np.float64]] = {
            column: scores[column].to_numpy().astype(np.float64) for column in self.columns
        }
        flagged = {name: found[name] > CUT for name, has_cut in self.columns.items() if has_cut}
        choices: dict[str, Any] = {"shrinkage": scores.provenance.shrinkage}
        return Verdict(found, flagged, choices)


Method = Callable[[Samples], Verdict]

OWN: dict[str, Method] = {
    "rmd": OwnColumns("rmd", {"rmd": False, "md": False, "rmd_loo": False, "label_margin": True}),
    "suspicion": OwnColumns("suspicion", {"suspicion": True}),
    "agree": OwnColumns("agree", {"agree": True}),
    "ambiguity": OwnColumns("ambiguity", {"ambiguity": True}),
}

WITHOUT_LABELS: dict[str, Method] = {
    "kmeans": OwnColumns("kmeans", {"kmeans": False}),
    "knn": OwnColumns("knn", {"knn": False}),
}
"""Columns that know no labels, and cannot find wrong ones."""

PEERS: dict[str, Method] = {
    "cleanlab": peers.cleanlab_scores,
    "training": peers.training_dynamics,
    "neighbours": peers.neighbour_votes,
    "pytorch-ood": peers.pytorch_ood_scores,
    "lda": peers.discriminant,
    "lof": peers.local_outliers,
}

NOT_PLANTED = ("lof", "pytorch-ood")
"""Peers that do not score planted noise, of which they would take more than half of the time."""

METHODS = OWN | WITHOUT_LABELS | PEERS
