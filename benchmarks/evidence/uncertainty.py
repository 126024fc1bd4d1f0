"""Uncertainty heads, which know no labels when they are applied, as a score beside the others."""

import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.evidence.cells import Cell, Result, read_arrays, read_result
from benchmarks.evidence.data import Study, read_images
from benchmarks.evidence.label_sets import LabelSet, label_samples
from benchmarks.evidence.samples import Verdict
from benchmarks.evidence.scored import UNCERTAINTY, cell_name, compare

TRAINING_SOURCE = "cifar10-train"


def head_name(backbone: str) -> str:
    """Name of the cell of a head."""
    return f"heads/{backbone.lower()}"


def train_head(study: Study, backbone: str, sources: Sequence[str]) -> Result:
    """Trains a classifier and its head as the recipe `uncertainty` does, and applies the head.

    Args:
        study: The study, which has the features of the training images and of `sources`.
        backbone: Backbone of the features.
        sources: Images that get uncertainties.

    Returns:
        Uncertainties by source, in the order of its features, with the cost of all.
    """
    train = study.store(TRAINING_SOURCE, backbone)
    run = study.folder / "heads" / backbone.lower()
    _difficulty(
        *("train", "uncertainty", "--set", f"data.train={train}"),
        *("--set", f"data.test={study.store(sources[0], backbone)}"),
        *("--seed", "0", "--out", run, *(["--resume"] if run.exists() else [])),
    )
    found = {}
    for source in sources:
        out = run.parent / f"{run.name}-{source}.parquet"
        _difficulty(
            *("uncertainty", run, study.store(source, backbone), "--out", out, "--no-r-auroc")
        )
        found[source] = pq.read_table(out)["uncertainty"].to_numpy().astype(np.float32)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Result(
        {"seconds": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024}, found
    )


def judge(study: Study, backbone: str, labels: LabelSet) -> Result:
    """Compares the uncertainties of a set's images with what is known of its labels."""
    uncertainties = read_arrays(study.folder, head_name(backbone))[labels.source]
    images = read_images(study, labels.source, backbone)
    _, targets = label_samples(study, images, labels)
    verdict = Verdict({UNCERTAINTY: uncertainties.astype(np.float64)})
    cost = read_result(study.folder, head_name(backbone)) or {}
    return Result(
        {
            "columns": compare(verdict, targets),
            "choices": {},
            **{key: cost[key] for key in ("seconds", "megabytes")},
        },
        {UNCERTAINTY: uncertainties},
    )


def head_cell(study: Study, backbone: str, sets: Sequence[LabelSet]) -> Cell:
    """The cell that trains a backbone's head and applies it to the images of some sets."""
    sources = list(dict.fromkeys(labels.source for labels in sets))
    return Cell(head_name(backbone), partial(train_head, study, backbone, sources))


def uncertainty_cells(study: Study, backbone: str, sets: Sequence[LabelSet]) -> list[Cell]:
    """Cells of the sets of labels, for which the head's cell must have run."""
    return [
        Cell(cell_name(backbone, labels, UNCERTAINTY), partial(judge, study, backbone, labels))
        for labels in sets
    ]


def _difficulty(*arguments: object) -> None:
    command = Path(sys.executable).with_name("difficulty")
    subprocess.run(  # noqa: S603 - our own command
        [command, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL
    )
