"""What the choices within the method cost: normalisation, shrinkage, landmarks, augmentation."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.cells import Cell, Result, measured
from benchmarks.evidence.data import Study, read_images
from benchmarks.evidence.label_sets import TEST_SET, LabelSet, label_samples
from benchmarks.evidence.measures import auroc_with_error, rank_agreement
from difficulty_service.features.store import open_store
from difficulty_service.gaussians.fit_options import Shrinkage
from difficulty_service.interface.score import score
from difficulty_service.scorers import suspicion
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.settings.options import ScoringOptions

WORST = LabelSet("cifar10-train", "worst")
COLUMNS = ("rmd", "label_margin", "suspicion", "agree")
AUGMENT_RUNS = (1, 3)

Features = NDArray[np.float32]


@dataclass(frozen=True)
class Choice:
    """One way to score.

    Attributes:
        name: Name in the table.
        shrinkage: As `--shrinkage`.
        prepare: Changes the features.
        landmarks: Most landmarks of `suspicion`.
        order: Seed of an order of the samples, which decides landmarks; None for the order as is.
    """

    name: str
    shrinkage: Shrinkage = "auto"
    prepare: Callable[[Features], Features] | None = None
    landmarks: int = suspicion.LANDMARKS
    order: int | None = None


def unit_length(features: Features) -> Features:
    """Features of length 1."""
    return features / np.linalg.norm(features, axis=1, keepdims=True)


CHOICES = [
    Choice("as shipped"),
    Choice("features of unit length", prepare=unit_length),
    *(
        Choice(f"shrinkage {rule}", shrinkage=rule)
        for rule in ("none", "ledoit-wolf", "oas", "leave-one-out", 0.1)
    ),
    *(Choice(f"{number:,} landmarks", landmarks=number) for number in (64, 256, 2048)),
    *(Choice(f"other landmarks {number}", order=number) for number in (1, 2, 3)),
]


def choose(study: Study, choice: Choice, labels: LabelSet) -> Result:
    """AUROC or rank correlation of every column under a choice."""
    images = read_images(study, labels.source, "builtin")
    samples, targets = label_samples(study, images, labels)
    features = samples.features if choice.prepare is None else choice.prepare(samples.features)
    order = np.arange(len(features))
    if choice.order is not None:
        order = np.random.default_rng(choice.order).permutation(order)
    suspicion.LANDMARKS = choice.landmarks  # of this process, which ends with the cell

    def columns() -> Any:  # noqa: ANN401
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return score(
                features[order],
                samples.labels[order],
                shrinkage=choice.shrinkage,
                scorers=("suspicion", "agree"),
            )

    scores, cost = measured(columns)
    found = {name: scores[name].to_numpy().astype(np.float64) for name in COLUMNS}
    if targets.disagreement is not None:
        votes = targets.disagreement[order]
        return Result({"people": {k: rank_agreement(v, votes) for k, v in found.items()}, **cost})
    wrong = targets.wrong[order]
    return Result({"wrong": {k: auroc_with_error(v, wrong) for k, v in found.items()}, **cost})


def augmented(study: Study, runs: int) -> Result:
    """Rank correlations with people of scores over several augmentation runs of the test images."""
    images = read_images(study, TEST_SET.source, "builtin")
    _, targets = label_samples(study, images, TEST_SET)
    store = open_store(study.store(TEST_SET.source, "builtin", runs))
    out = study.folder / f"augmented-{runs}.parquet"
    request = ScoreRequest(out, ScoringOptions(scorers=("suspicion", "agree")))
    _, cost = measured(lambda: score_features(store, request))
    table = read_scores(out).table
    people = {
        name: rank_agreement(table[name].to_numpy().astype(np.float64), targets.disagreement)
        for name in COLUMNS
        if targets.disagreement is not None
    }
    return Result({"people": people, **cost})


def choice_cells(study: Study) -> list[Cell]:
    """Cells of every choice, on the labels with most errors and on the votes."""
    return [
        Cell(
            f"choices/{labels.kind}/{choice.name.replace(' ', '-')}",
            partial(choose, study, choice, labels),
        )
        for choice in CHOICES
        for labels in (TEST_SET, WORST)
    ]


def augmentation_cells(study: Study) -> list[Cell]:
    """Cells of the augmentation runs, whose features must be there."""
    return [
        Cell(f"choices/official/{runs}-augmentation-runs", partial(augmented, study, runs))
        for runs in AUGMENT_RUNS
    ]
