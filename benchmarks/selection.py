"""Accuracy of a linear probe on samples that each strategy chose, always beside random ones.

    difficulty extract 'cifar10_train_*.parquet' --backbone builtin --out train.features
    difficulty extract cifar10_test.parquet --backbone builtin --out test.features
    python benchmarks/selection.py train.features test.features [--counts 50,500] [--wrong 0.1]

The probe is that of `linear_probe.py` on the same features, standardised by all samples of the
pool. What chooses without labels competes for the samples to label next: random,
typical, diverse and hard by `md_agnostic`. What uses them competes for the samples to keep: the
balanced choices, and hard and easy by `rmd`. With `--wrong`, that share of the labels of the pool
is changed at random first. Each number is the mean over the seeds, with the standard deviation.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from linear_probe import fit_probe, read_features
from machine import machine
from numpy.typing import NDArray
from torch import Tensor

import difficulty_service as ds
from difficulty_service.base.process_setup import enable_avx512_kernels

CHOICES: Mapping[str, Mapping[str, object]] = {
    "random": {},
    "typical": {"strategy": "typical"},
    "diverse": {"strategy": "diverse"},
    "hard, md_agnostic": {"strategy": "hard", "by": "md_agnostic"},
    "random, balanced": {"balanced": True},
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
    """Labels of which a share is another class at random."""
    generator = np.random.default_rng(seed)
    number = int(labels.max()) + 1
    rows = generator.permutation(len(labels))[: round(share * len(labels))]
    changed = labels.copy()
    changed[rows] = (labels[rows] + generator.integers(1, number, len(rows))) % number
    return changed


def choose(
    name: str, pool: tuple[Tensor, NDArray[np.int64]], scores: ds.Scores, count: int, seed: int
) -> NDArray[np.int64]:
    """Positions of the samples that one choice makes."""
    options = dict(CHOICES[name])
    if "by" in options:
        options["scores"] = scores
    selection = ds.select(pool, count, seed=seed, **options)
    return np.array([int(each) for each in selection.sample_ids])


def main() -> None:
    """Prints a row for each choice, with the accuracy at each number of samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--counts", default="50,100,500,2500,10000")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--wrong", type=float, default=0.0)
    parser.add_argument("--only", default=";".join(CHOICES))
    arguments = parser.parse_args()
    enable_avx512_kernels()
    print(machine())
    counts = [int(each) for each in arguments.counts.split(",")]
    train, given = read_features(arguments.train)
    test, expected = read_features(arguments.test)
    mean, scale = train.mean(dim=0), train.std(dim=0).clamp_min(1e-6)
    standard, tested = (train - mean) / scale, (test - mean) / scale
    labels = {
        seed: with_wrong_labels(given.numpy().astype(np.int64), arguments.wrong, seed)
        for seed in range(arguments.seeds)
    }
    scores = {seed: ds.score(train, each, scorers="rmd") for seed, each in labels.items()}
    print(f"{len(train):,} samples; accuracy in % with {', '.join(map(str, counts))} of them")
    for name in arguments.only.split(";"):
        began, cells = time.perf_counter(), []
        for count in counts:
            found = []
            for seed, known in labels.items():
                rows = choose(name, (train, known), scores[seed], count, seed)
                some = torch.from_numpy(known[rows])
                accuracy = probe_accuracy(standard[rows], some, tested, expected.long())
                found.append(100 * accuracy)
            cells.append(f"{np.mean(found):5.1f} ± {np.std(found):.1f}")
        print(f"{name:20} {' | '.join(cells)}   {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
