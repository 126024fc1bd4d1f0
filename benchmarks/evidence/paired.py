"""How much better one score ranks wrong labels than each peer, on the same samples."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.evidence.cells import Cell, Result, read_arrays, result_file
from benchmarks.evidence.data import Study, read_images
from benchmarks.evidence.label_sets import LabelSet, label_samples
from benchmarks.evidence.measures import Scores, auroc_difference
from benchmarks.evidence.methods import PEERS
from benchmarks.evidence.scored import cell_name

OURS = "suspicion"
"""The column that is compared: the one of this project that is made for wrong labels."""


def differences(study: Study, backbone: str, labels: LabelSet) -> Result:
    """AUROC of ours minus that of each peer's column, with paired intervals."""
    images = read_images(study, labels.source, backbone)
    _, targets = label_samples(study, images, labels)

    def scores_of(method: str) -> dict[str, Scores]:
        arrays = read_arrays(study.folder, cell_name(backbone, labels, method))
        return {name: np.nan_to_num(each, nan=np.nanmin(each)) for name, each in arrays.items()}

    ours = scores_of(OURS)[OURS]
    found = {
        column: auroc_difference(ours, scores, targets.wrong)
        for method in PEERS
        for column, scores in scores_of(method).items()
    }
    return Result({"difference": found})


def paired_name(backbone: str, labels: LabelSet) -> str:
    """Name of the cell of a set of labels."""
    return f"paired/{backbone.lower()}/{labels.name}"


def paired_cells(study: Study, backbones: Sequence[str], sets: Sequence[LabelSet]) -> list[Cell]:
    """Cells of the sets of labels that ours and all peers have scored."""
    return [
        Cell(paired_name(backbone, labels), partial(differences, study, backbone, labels))
        for backbone in backbones
        for labels in sets
        if all(
            result_file(study.folder, cell_name(backbone, labels, method)).exists()
            for method in (OURS, *PEERS)
        )
    ]
