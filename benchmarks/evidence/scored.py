"""Cells that score samples by one method and compare the scores with what is known of them."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.evidence.cells import Cell, Result, measured, read_arrays, result_file
from benchmarks.evidence.data import BACKBONES, Study, read_images
from benchmarks.evidence.label_sets import (
    PLANTED_SETS,
    TEST_SET,
    LabelSet,
    Targets,
    label_samples,
)
from benchmarks.evidence.measures import (
    detection,
    mean_of_ranks,
    rank_agreement,
)
from benchmarks.evidence.methods import METHODS, NOT_PLANTED, OWN, PEERS
from benchmarks.evidence.samples import Verdict

UNCERTAINTY = "uncertainty"
"""Method and column of uncertainty heads, which are trained once for all sets of labels."""

CONSENSUS = "consensus"
"""Name of the backbone that stands for both: the mean of the ranks that their scores give."""


def cell_name(backbone: str, labels: LabelSet, method: str) -> str:
    """Name of the cell of a method."""
    return f"scores/{backbone.lower()}/{labels.name}/{method}"


def score_samples(study: Study, backbone: str, labels: LabelSet, method: str) -> Result:
    """Scores a set of labels by one method."""
    images = read_images(study, labels.source, backbone)
    samples, targets = label_samples(study, images, labels)
    verdict, cost = measured(partial(METHODS[method], samples))
    return Result(
        {"columns": compare(verdict, targets), "choices": verdict.choices, **cost},
        {name: values.astype(np.float32) for name, values in verdict.scores.items()},
    )


def compare(verdict: Verdict, targets: Targets) -> dict[str, dict[str, object]]:
    """What every column of a verdict says about the targets."""
    found: dict[str, dict[str, object]] = {}
    for column, scores in verdict.scores.items():
        found[column] = {}
        # Samples that cannot be scored, such as the only one of a class, count as unsuspicious.
        ranked = np.nan_to_num(scores, nan=np.nanmin(scores))
        if targets.wrong.sum() > 1:  # an interval needs two
            flagged = verdict.flagged.get(column)
            found[column]["wrong"] = detection(ranked, targets.wrong, flagged)
        if targets.disagreement is not None:
            found[column]["people"] = rank_agreement(ranked, targets.disagreement)
    return found


def agree_on_samples(study: Study, labels: LabelSet, method: str) -> Result:
    """The consensus of both backbones on a set of labels."""
    images = read_images(study, labels.source, BACKBONES[0])
    _, targets = label_samples(study, images, labels)
    arrays = [read_arrays(study.folder, cell_name(each, labels, method)) for each in BACKBONES]
    scores = {
        column: mean_of_ranks([each[column].astype(np.float64) for each in arrays])
        for column in arrays[0]
    }
    return Result({"columns": compare(Verdict(scores), targets), "choices": {}})


def methods_for(labels: LabelSet) -> list[str]:
    """Methods that score a set of labels: those without labels are compared with people only."""
    if labels == TEST_SET:
        return list(METHODS)
    left_out = NOT_PLANTED if labels in PLANTED_SETS else ()
    return [method for method in OWN | PEERS if method not in left_out]


def scored_cells(study: Study, backbone: str, sets: Sequence[LabelSet]) -> list[Cell]:
    """Cells of every method on some sets of labels."""
    return [
        Cell(
            cell_name(backbone, labels, method),
            partial(score_samples, study, backbone, labels, method),
        )
        for labels in sets
        for method in methods_for(labels)
    ]


def consensus_cells(study: Study, sets: Sequence[LabelSet]) -> list[Cell]:
    """Cells of the consensus for which both backbones have scores."""
    return [
        Cell(cell_name(CONSENSUS, labels, method), partial(agree_on_samples, study, labels, method))
        for labels in sets
        for method in (*methods_for(labels), UNCERTAINTY)
        if all(
            result_file(study.folder, cell_name(backbone, labels, method)).exists()
            for backbone in BACKBONES
        )
    ]
