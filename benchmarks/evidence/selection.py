"""Accuracy of a linear probe on samples that each strategy chose, always beside random ones.

    python -m benchmarks.evidence.selection [--folder runs/evidence] [--seeds 3]

The pools are the 50,000 training images of CIFAR-10 with the built-in encoder, also with a tenth of
their labels changed at random, and eight images of each class of Tiny ImageNet with the one for
photographs; the tests are CIFAR-10's test images and the other two images of each class. The probe
is that of `linear_probe.py`, on features that are standardised by all samples of the pool. What
chooses without labels competes for the samples to label next: random, typical, diverse and hard by
`md_agnostic`. What uses them competes for the samples to keep: the balanced choices, and hard and
easy by `rmd`.

Writes `selection.csv` of the evidence: the mean accuracy over the seeds, its standard deviation,
and the difference from the random choice, with the 95 % interval over the seeds.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import difficulty_service as ds
from benchmarks.evidence.data import Study, extract, read_images, require_data
from benchmarks.evidence.noise import change_at_random
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.evidence.training.comparison import paired_difference
from benchmarks.linear_probe import fit_probe
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.base.process_setup import enable_avx512_kernels

RANDOM, RANDOM_BALANCED = "random", "random, balanced"
TESTS_PER_CLASS = 2
PLANTING = 1
"""Tells the random numbers of wrong labels from those of choices."""
COLUMNS = (
    *("dataset", "wrong_share", "choice", "count", "seeds", "accuracy", "sd"),
    *("difference", "difference_95", "machine"),
)

CHOICES: Mapping[str, Mapping[str, Any]] = {
    RANDOM: {},
    "typical": {"strategy": "typical"},
    "diverse": {"strategy": "diverse"},
    "hard, md_agnostic": {"strategy": "hard", "by": "md_agnostic"},
    RANDOM_BALANCED: {"balanced": True},
    "typical, balanced": {"strategy": "typical", "balanced": True},
    "hard, rmd": {"strategy": "hard", "by": "rmd", "balanced": True},
    "easy, rmd": {"strategy": "easy", "by": "rmd", "balanced": True},
    "random:3,hard, rmd": {"strategy": "random:3,hard", "by": "rmd", "balanced": True},
}
"""What is compared: the options of `ds.select`."""


def probe_accuracy(train: Tensor, labels: Tensor, test: Tensor, expected: Tensor) -> float:
    """Share of the test set that a probe of some samples gets right."""
    parameters = fit_probe(train, labels, int(expected.max()) + 1)
    logits = torch.nn.functional.pad(test, (0, 1), value=1.0) @ parameters
    return float((logits.argmax(dim=1) == expected).double().mean())


def with_wrong_labels(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Labels of which a share is another class at random.

    The random numbers are not those of a choice with the same seed, which would choose these rows.
    """
    random = np.random.default_rng((seed, PLANTING))
    return change_at_random(labels, int(labels.max()) + 1, share, random)


def choose(
    name: str, pool: tuple[Tensor, NDArray[np.int64]], scores: ds.Scores, count: int, seed: int
) -> NDArray[np.int64]:
    """Positions of the samples that one choice makes."""
    options = dict(CHOICES[name])
    if "by" in options:
        options["scores"] = scores
    selection = ds.select(pool, count, seed=seed, **options)
    return np.array([int(each) for each in selection.sample_ids])


@dataclass(frozen=True)
class Task:
    """A pool to choose from and what a probe is tested on.

    Attributes:
        name: Name of the dataset.
        wrong: Share of the labels of the pool that are changed.
        counts: Numbers of samples to choose.
        pool: Features of shape (samples, dim).
        labels: Right labels of the pool. Shape (samples,).
        test: Features of the test samples. Shape (tests, dim).
        expected: Their labels. Shape (tests,).
    """

    name: str
    wrong: float
    counts: tuple[int, ...]
    pool: Tensor
    labels: NDArray[np.int64]
    test: Tensor
    expected: Tensor


def tasks(study: Study) -> Iterator[Task]:
    """All tasks, whose features are extracted where they are missing."""
    for source, backbone in (
        ("cifar10-train", "builtin"),
        ("cifar10-test", "builtin"),
        ("tiny-imagenet", "builtin-photos"),
    ):
        extract(study, source, backbone)
    train, test = (read_images(study, f"cifar10-{each}", "builtin") for each in ("train", "test"))
    cifar10 = (
        torch.from_numpy(train.features),
        train.labels,
        torch.from_numpy(test.features),
        torch.from_numpy(test.labels),
    )
    yield Task("CIFAR-10", 0.0, (50, 500, 5000), *cifar10)
    yield Task("CIFAR-10", 0.1, (500,), *cifar10)
    tiny = read_images(study, "tiny-imagenet", "builtin-photos")
    features, is_test = torch.from_numpy(tiny.features), held_out(tiny.labels)
    yield Task(
        "Tiny ImageNet",
        0.0,
        (200, 400, 800),
        features[~is_test],
        tiny.labels[~is_test],
        features[is_test],
        torch.from_numpy(tiny.labels[is_test]),
    )


def held_out(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The last TESTS_PER_CLASS samples of each class. Shape (samples,)."""
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        is_test[np.flatnonzero(labels == label)[-TESTS_PER_CLASS:]] = True
    return is_test


def rows(task: Task, seeds: int) -> Iterator[Row]:
    """A row for each choice and number of samples."""
    mean, scale = task.pool.mean(dim=0), task.pool.std(dim=0).clamp_min(1e-6)
    standard, tested = (task.pool - mean) / scale, (task.test - mean) / scale
    given = [with_wrong_labels(task.labels, task.wrong, seed) for seed in range(seeds)]
    scores = [ds.score(task.pool, each, scorers="rmd") for each in given]
    found: dict[tuple[str, int], list[float]] = {}
    for name in CHOICES:
        reference = RANDOM_BALANCED if CHOICES[name].get("balanced") else RANDOM
        for count in task.counts:
            found[name, count] = values = []
            for seed in range(seeds):
                chosen = choose(name, (task.pool, given[seed]), scores[seed], count, seed)
                some = torch.from_numpy(given[seed][chosen])
                accuracy = probe_accuracy(standard[chosen], some, tested, task.expected)
                values.append(100 * accuracy)
            row = {"dataset": task.name, "wrong_share": f"{task.wrong:g}", "choice": name}
            row |= {"count": str(count), "seeds": str(seeds), "accuracy": f"{np.mean(values):.1f}"}
            if seeds > 1:
                row["sd"] = f"{np.std(values, ddof=1):.1f}"
                if name not in (RANDOM, RANDOM_BALANCED):
                    gain, error = paired_difference(values, found[reference, count])
                    row |= {"difference": f"{gain:+.1f}", "difference_95": f"{error:.1f}"}
            print(row, flush=True)
            yield row | {"machine": machine()}


def main() -> None:
    """Chooses and trains, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder())
    require_data(study)
    enable_avx512_kernels()
    table = [row for task in tasks(study) for row in rows(task, arguments.seeds)]
    write_rows(DOCS / TABLES / "selection.csv", COLUMNS, table)
    write_page(DOCS)


if __name__ == "__main__":
    main()
