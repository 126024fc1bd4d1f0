"""An uncertainty head, which knows no labels when it is applied: trained on the training images."""

import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.evidence.cells import Cell, Result
from benchmarks.evidence.data import Study, read_images
from benchmarks.evidence.label_sets import TEST_SET, label_samples
from benchmarks.evidence.samples import Verdict
from benchmarks.evidence.scored import cell_name, compare

METHOD, COLUMN = "uncertainty", "uncertainty"
TRAINING_SOURCE = "cifar10-train"


def uncertainties(study: Study, backbone: str) -> Result:
    """Trains a classifier and its head as the recipe `uncertainty` does, and applies the head."""
    train, test = (study.store(each, backbone) for each in (TRAINING_SOURCE, TEST_SET.source))
    run = study.folder / "heads" / backbone.lower()
    _difficulty(
        *("train", "uncertainty", "--set", f"data.train={train}", "--set", f"data.test={test}"),
        *("--seed", "0", "--out", run, *(["--resume"] if run.exists() else [])),
    )
    out = run.with_suffix(".parquet")
    _difficulty("uncertainty", run, test, "--out", out, "--no-r-auroc")
    _, targets = label_samples(study, read_images(study, TEST_SET.source, backbone), TEST_SET)
    scores = pq.read_table(out)[COLUMN].to_numpy().astype(float)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {"seconds": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024}
    return Result({"columns": compare(Verdict({COLUMN: scores}), targets), "choices": {}, **cost})


def uncertainty_cell(study: Study, backbone: str) -> Cell:
    """The cell of a backbone's head."""
    name = cell_name(backbone, TEST_SET, METHOD)
    return Cell(name, partial(uncertainties, study, backbone))


def _difficulty(*arguments: object) -> None:
    command = Path(sys.executable).with_name("difficulty")
    subprocess.run(  # noqa: S603 - our own command
        [command, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL
    )
