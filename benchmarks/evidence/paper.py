"""The figures of Cui et al. (2023) that the data at hand can show.

Figure 1b: mean RMD over the severity of corruptions and of label noise. Figures 2, 6 and 7: errors
of trained networks over images sorted by difficulty, for several backbones and measures.
"""

import io
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image

from benchmarks.evidence.cells import Cell, Result, measured, read_arrays, result_file
from benchmarks.evidence.data import BACKBONES, Study, read_columns, read_images
from benchmarks.evidence.label_sets import TEST_SET
from benchmarks.evidence.scored import cell_name
from difficulty_service.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from difficulty_service.interface.encoder import backbone as load_encoder
from difficulty_service.interface.estimator import RelativeMahalanobis

CORRUPTED_IMAGES = 500
BINS = 20
ERROR_COLUMNS = {
    "rmd": "rmd",
    "md": "rmd",
    "label_margin": "rmd",
    "suspicion": "suspicion",
    "kmeans": "kmeans",
    "knn": "knn",
}
"""Score columns whose order the errors are compared in, with the method that gives them."""


def fitted(study: Study, backbone: str) -> RelativeMahalanobis:
    """Gaussians of the training images with official labels."""
    images = read_images(study, "cifar10-train", backbone)
    return RelativeMahalanobis().fit(images.features, images.labels)


def mean_with_error(values: NDArray[np.float64]) -> list[float]:
    """Mean and half-width of its 95 % interval."""
    return [float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))]


def corruption(study: Study, name: str) -> Result:
    """Mean RMD of test images under a corruption, at each severity."""
    gaussians = fitted(study, "builtin")
    images = read_images(study, "cifar10-test", "builtin")
    chosen = np.linspace(0, len(images.labels) - 1, CORRUPTED_IMAGES).astype(int)
    encoded = read_columns(study, "cifar10-test", ["image"])["image"]
    opened = [
        np.asarray(Image.open(io.BytesIO(each)).convert("RGB"))
        for each in encoded.take(images.positions[chosen]).to_pylist()
    ]
    pixels = torch.from_numpy(np.stack(opened)).permute(0, 3, 1, 2).contiguous()
    encoder, labels = load_encoder("builtin"), images.labels[chosen]

    def by_severity() -> list[list[float]]:
        found = [gaussians.score_samples(images.features[chosen], labels)]
        for severity in SEVERITIES:
            corrupted = corrupt(pixels, name, severity, seed=0)
            found.append(gaussians.score_samples(encoder.encode(corrupted), labels))
        return [mean_with_error(scores) for scores in found]

    means, cost = measured(by_severity)
    return Result({"severities": [0, *SEVERITIES], "rmd": means, **cost})


def label_noise(study: Study, backbone: str) -> Result:
    """Mean RMD of test images whose labels become ever less similar classes."""
    gaussians = fitted(study, backbone)
    images = read_images(study, "cifar10-test", backbone)
    means = gaussians.gaussians_.whitened_means
    by_distance = torch.cdist(means, means).argsort(dim=1).numpy()  # the own class is the first

    def by_rank() -> list[list[float]]:
        return [
            mean_with_error(
                gaussians.score_samples(images.features, by_distance[images.labels, rank])
            )
            for rank in range(by_distance.shape[1])
        ]

    found, cost = measured(by_rank)
    return Result({"ranks": list(range(len(found))), "rmd": found, **cost})


def errors(study: Study, backbone: str) -> Result:
    """Error rates of eight networks in bins of test images, sorted by each score column."""
    images = read_images(study, TEST_SET.source, BACKBONES[0])
    table = pq.read_table(study.shared / "data/cifar10_test_model_outputs.parquet")
    names = [name for name in table.column_names if name.startswith("logits_")]
    outputs = [np.stack(table[name].to_numpy(zero_copy_only=False)) for name in names]
    wrong = np.stack([each[images.positions].argmax(axis=1) != images.labels for each in outputs])
    rates = {}
    for column, method in ERROR_COLUMNS.items():
        scores = read_arrays(study.folder, cell_name(backbone, TEST_SET, method))[column]
        bins = np.array_split(np.argsort(scores, kind="stable"), BINS)
        rates[column] = [[float(each[rows].mean()) for rows in bins] for each in wrong]
    networks = [name.removeprefix("logits_") for name in names]
    return Result({"networks": networks, "rates": rates})


def paper_cells(study: Study, backbones: tuple[str, ...] = BACKBONES) -> list[Cell]:
    """Cells of all figures whose features are there."""
    cells = [
        Cell(f"paper/label-noise/{backbone.lower()}", partial(label_noise, study, backbone))
        for backbone in backbones
        if (study.store("cifar10-train", backbone) / "errors.parquet").exists()
    ]
    cells += [
        Cell(f"paper/errors/{backbone.lower()}", partial(errors, study, backbone))
        for backbone in backbones
        if all(
            result_file(study.folder, cell_name(backbone, TEST_SET, method)).exists()
            for method in ERROR_COLUMNS.values()
        )
    ]
    return cells + [
        Cell(f"paper/corruption/{name}", partial(corruption, study, name)) for name in CORRUPTIONS
    ]
