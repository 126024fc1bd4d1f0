"""What several views of the same images say together, as `difficulty consensus` combines them.

A view is a backbone, the size of its images, and whether mirror images are averaged. Beside the
scores of the project is EL2N, the peer that agrees best with people; it is no density, so that its
scores of several views are averaged by rank.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.evidence.cells import Cell, Result, measured, read_arrays
from benchmarks.evidence.data import BACKBONES, LARGE_MOBILENET, Images, Study, extract, read_images
from benchmarks.evidence.label_sets import TEST_SET, TRAINING_SETS, LabelSet, label_samples
from benchmarks.evidence.measures import Scores, mean_of_ranks
from benchmarks.evidence.peers import training_dynamics
from benchmarks.evidence.samples import Samples, Verdict
from benchmarks.evidence.scored import compare
from difficulty_service.analyses.consensus.consensus import consensus_of
from difficulty_service.interface.score import score

COLUMNS = ("rmd", "label_margin", "suspicion", "agree")
PEER = "EL2N"


@dataclass(frozen=True)
class View:
    """Features of images by one backbone.

    Attributes:
        backbone: Name of the backbone in this study.
        flip: Whether the features are averaged with those of the mirror images.
    """

    backbone: str
    flip: bool = False

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.backbone + (" + flip" if self.flip else "")


PLAIN = tuple(View(backbone) for backbone in BACKBONES)
COMBINED = (
    View("builtin", flip=True),
    View("MobileNetV2", flip=True),
    View(LARGE_MOBILENET),
)
SINGLE = (*PLAIN, *COMBINED)
SEVERAL = (PLAIN, *combinations(COMBINED, 2), COMBINED)
"""Views that are compared on the images that people voted on."""


def name_of(views: Sequence[View]) -> str:
    """Some views in tables."""
    return ", ".join(view.name for view in views)


def view_name(views: Sequence[View], labels: LabelSet) -> str:
    """Name of the cell of some views."""
    return f"views/{labels.name}/{name_of(views).lower().replace(', ', '-and-').replace(' ', '')}"


def look_at(study: Study, views: Sequence[View], labels: LabelSet) -> Result:
    """Scores a set of labels by one view, or by several together.

    The scores of the peer are kept in the order of the dataset.
    """
    images = [read_images(study, labels.source, view.backbone, flip=view.flip) for view in views]
    labelled = [label_samples(study, each, labels) for each in images]
    samples = [each for each, _ in labelled]
    found, cost = measured(lambda: _scores(samples, images, study.folder))
    by_position = np.argsort(images[0].positions)
    arrays = {}
    if len(views) == 1:
        found[PEER] = training_dynamics(samples[0]).scores[PEER]
        arrays[PEER] = found[PEER][by_position].astype(np.float32)
    elif labels == TEST_SET:
        peers = [read_arrays(study.folder, view_name([view], labels))[PEER] for view in views]
        found[PEER] = np.empty(len(by_position))
        found[PEER][by_position] = mean_of_ranks([each.astype(np.float64) for each in peers])
    return Result({"columns": compare(Verdict(found), labelled[0][1]), **cost}, arrays)


def _scores(
    samples: Sequence[Samples], images: Sequence[Images], folder: Path
) -> dict[str, Scores]:
    """Scores of the samples by their features of each view, in the order of the first."""
    if len(samples) == 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what a reader of a file should know
            table = score(samples[0].features, samples[0].labels, scorers=("suspicion", "agree"))
        return {name: table[name].to_numpy().astype(np.float64) for name in COLUMNS}
    with TemporaryDirectory(dir=folder) as temporary:
        files = [Path(temporary) / f"{number}.npz" for number in range(len(samples))]
        for file, each, shown in zip(files, samples, images, strict=True):
            np.savez(file, features=each.features, labels=each.labels, ids=shown.positions)
        combined = consensus_of(files).table
    row_of = {sample_id: row for row, sample_id in enumerate(combined["sample_id"].to_pylist())}
    order = [row_of[str(position)] for position in images[0].positions]
    return {name: combined[name].to_numpy().astype(np.float64)[order] for name in COLUMNS}


def extract_views(study: Study) -> None:
    """Extracts the features of the images that people voted on by every view."""
    for view in SINGLE:
        extract(study, TEST_SET.source, view.backbone, flip=view.flip)


def single_view_cells(study: Study) -> list[Cell]:
    """Cells of every view alone; they come before those of several."""
    return [_cell(study, [view], TEST_SET) for view in SINGLE]


def several_view_cells(study: Study) -> list[Cell]:
    """Cells of several views together, and of both plain ones on all labels that people gave."""
    return [
        *(_cell(study, views, TEST_SET) for views in SEVERAL),
        *(_cell(study, PLAIN, labels) for labels in TRAINING_SETS),
    ]


def _cell(study: Study, views: Sequence[View], labels: LabelSet) -> Cell:
    return Cell(view_name(views, labels), partial(look_at, study, views, labels))
