"""What the short form of `suspicion` for large datasets changes, beside the exact form.

    python -m benchmarks.evidence.large_form [--folder runs/evidence] [--samples 32]

Judges the training images of CIFAR-10 and CIFAR-100 with labels that people gave and with planted
errors by both forms, with the features of the built-in encoder and 1,024 landmarks. Then with their
first principal components and fewer landmarks, so that there are more samples for each dimension.
The covariance is of as many samples as by default, or of the given number for each dimension.
Prints a row for each, as in `docs/suspicion.md`, and the rank correlation of both forms.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.evidence.data import Study, extract, read_images, require_data
from benchmarks.evidence.label_sets import LabelSet, label_samples
from benchmarks.evidence.noise import change_at_random
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.products import BLOCK_ROWS, one_thread_per_product
from difficulty_service.scorers import suspicion
from difficulty_service.scorers.suspicion import PosteriorOptions, fit_posteriors

SETS = (
    *(LabelSet("cifar10-train", kind) for kind in ("aggre", "rand1", "worst")),
    *(LabelSet("cifar10-train", "symmetric", rate) for rate in (0.03, 0.2)),
    *(LabelSet("cifar100-train", "symmetric", rate) for rate in (0.05, 0.2)),
    *(LabelSet("cifar100-train", "class-dependent", rate) for rate in (0.05, 0.2)),
)
COMPONENTS, FEW_LANDMARKS = 96, 160
SEED = 20261
"""Not that of the fit, which would draw the wrong labels for its own sample."""


@dataclass(frozen=True)
class Judged:
    """What one form says of labels.

    Attributes:
        precision: Share of the labels above one half that is wrong.
    """

    suspicion: NDArray[np.float64]
    auroc: float
    expected: float
    precision: float


def labelled(study: Study, labels: LabelSet) -> tuple[Tensor, Tensor, NDArray[np.bool_]]:
    """Features, given labels and which of these are wrong."""
    extract(study, labels.source, "builtin")
    images = read_images(study, labels.source, "builtin")
    if labels.kind == "symmetric":
        classes = int(images.labels.max()) + 1
        random = np.random.default_rng(SEED)
        given = change_at_random(images.labels, classes, labels.rate, random)
    else:
        given = label_samples(study, images, labels)[0].labels
    return torch.from_numpy(images.features), torch.from_numpy(given), given != images.labels


def judge(features: Tensor, labels: Tensor, wrong: NDArray[np.bool_]) -> Judged:
    """Fits and judges all labels."""
    options = PosteriorOptions(("suspicion",), int(labels.max()) + 1)
    posteriors = fit_posteriors(TensorBatches(features, labels), options)
    with one_thread_per_product():
        blocks = zip(features.split(BLOCK_ROWS), labels.split(BLOCK_ROWS), strict=True)
        found = torch.cat([posteriors.columns(*block)["suspicion"] for block in blocks]).numpy()
    return Judged(
        found,
        float(roc_auc_score(wrong, found)),
        float((1 / (1 + np.exp(-found))).sum()),
        float(wrong[found > 0].mean()),
    )


def components(features: Tensor) -> Tensor:
    """The first principal components."""
    centred = features.double() - features.mean(dim=0, dtype=torch.float64)
    axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -COMPONENTS:]
    return (centred @ axes).float()


def rows(study: Study, labels: LabelSet, samples: int | None) -> Iterator[str]:
    """A row for all dimensions, and one for the first components."""
    features, given, wrong = labelled(study, labels)
    name = labels.kind + (f" {100 * labels.rate:g} %" if labels.rate else "")
    name = f"{'CIFAR-100' if '100' in labels.source else 'CIFAR-10N'}, {name}"
    by_default = suspicion.COVARIANCE_SAMPLES_PER_DIMENSION
    per_dimension = by_default if samples is None else (samples, samples)
    for landmarks in (suspicion.LANDMARKS, FEW_LANDMARKS):
        chosen = features if landmarks == suspicion.LANDMARKS else components(features)
        with (
            patch.object(suspicion, "LANDMARKS", landmarks),
            patch.object(suspicion, "COVARIANCE_SAMPLES_PER_DIMENSION", per_dimension),
        ):
            short = judge(chosen, given, wrong)
            with patch.object(suspicion, "is_large", lambda *_: False):
                exact = judge(chosen, given, wrong)
        correlation = spearmanr(short.suspicion, exact.suspicion).statistic
        yield (
            f"| {name} | {chosen.shape[1]} + {landmarks:,} | {exact.auroc:.4f} "
            f"| {short.auroc - exact.auroc:+.4f} "
            f"| {100 * (short.expected / exact.expected - 1):+.1f} % "
            f"| {short.precision - exact.precision:+.4f} |    ranks {correlation:.5f}"
        )


def main() -> None:
    """Prints the rows of all sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--samples", type=int, help="in the covariance, for each dimension")
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder())
    require_data(study)
    print(machine())
    for labels in SETS:
        for row in rows(study, labels, arguments.samples):
            print(row, flush=True)


if __name__ == "__main__":
    main()
