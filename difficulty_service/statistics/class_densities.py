"""Log-densities of the classes at each sample, as if it had not taken part in the fit.

Unlike `class_distances`, which serves some thousand samples, this is for a pass over all of them:
one triangular product and one with the class means for each row, and no matrix per sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.statistics.class_distances import (
    ClassGeometry,
    class_distances_left_out,
    class_geometry,
    distances_of_rows_left_out,
)
from difficulty_service.statistics.class_prior import log_class_prior
from difficulty_service.statistics.factor import whiten_with_ridge
from difficulty_service.statistics.gaussian import covariance_within, mean_variance
from difficulty_service.statistics.moments import Moments
from difficulty_service.statistics.products import (
    Projection,
    Workspace,
    chunk_ranges,
    matmul,
    one_thread_per_product,
    projection,
    squared_lengths,
)

DISTANCES_IN_CACHE = 1 << 16
"""Approximate number of distances to classes that are worked on at a time, in several copies."""


@dataclass(frozen=True)
class ClassDensities:
    """Gaussians of the classes with one covariance; made by `fit_densities`.

    Attributes:
        classes: Label of each class that has samples, ascending; all else is about these. Shape
            (fitted,).
        log_prior: Logarithm of the prior probability of each class, from `log_class_prior`. Shape
            (fitted,).
        mean: Mean of all samples. Shape (dim,).
        whitening: Map to the space where the covariance within classes and its ridge are 1.
        class_points: Class means minus the mean in that space. Shape (fitted, dim).
        geometry: Lengths of the class points and distances between them, and rows of each class.
        runs: Rows per sample.
    """

    classes: Tensor
    log_prior: Tensor
    mean: Tensor
    whitening: Projection
    class_points: Tensor
    geometry: ClassGeometry
    runs: int

    def places(self, labels: Tensor) -> Tensor:
        """Index among the fitted classes of each label, which must be one of them."""
        return torch.searchsorted(self.classes, labels)

    def log_densities(
        self, features: Tensor, labels: Tensor, work: Workspace
    ) -> Iterator[tuple[slice, Tensor]]:
        """Minus half the squared distance to each class mean, without the sample in the fit.

        Args:
            features: Mapped features of the fit, the rows of a sample adjacent.
                Shape (samples * runs, dim).
            labels: Index of the own class of each sample from `places`. Shape (samples,).
            work: Memory of the calling thread.

        Yields:
            As many samples as a core's cache holds the distances of, and their mean over the runs,
            up to a constant for all classes, in memory that is overwritten later. NaN for the own
            class of a sample that is alone in it, and for all where the covariance becomes
            singular. Shape (samples, fitted).
        """
        points = work.matrix("whitened", len(features), self.whitening.rank, self.mean)
        # The whitening map is triangular, so that it can be applied in place.
        self.whitening.apply(torch.sub(features, self.mean, out=points), points)
        num_classes, runs = len(self.class_points), self.runs
        if runs == 1:
            products = work.matrix("products", len(points), num_classes, points)
            matmul(points, self.class_points.T, out=products)
            lengths = squared_lengths(points)
        for rows in chunk_ranges(len(labels), max(1, DISTANCES_IN_CACHE // num_classes)):
            if runs == 1:
                left_out = distances_of_rows_left_out(
                    lengths[rows], products[rows], labels[rows], self.geometry, work
                )
                yield rows, left_out.distances.div_(-2)
                continue
            distances = class_distances_left_out(
                points[rows.start * runs : rows.stop * runs],
                labels[rows],
                self.class_points,
                self.geometry.counts,
                runs,
            ).distances
            yield rows, distances.view(-1, runs, num_classes).mean(dim=1).div_(-2)


@one_thread_per_product()
def fit_densities(
    moments: Moments, ridge: float, runs: int, matmul_dtype: torch.dtype
) -> ClassDensities:
    """Class densities with a ridge on the shared covariance.

    Args:
        moments: Moments of all samples.
        ridge: Variance to add to every direction, as a share of the mean variance of all samples.
        runs: Rows per sample.
        matmul_dtype: dtype of the matrix products.

    Raises:
        StatisticsError: All features are the same.
    """
    classes = (moments.counts > 0).nonzero().flatten()
    counts = moments.counts[classes]
    whitening = whiten_with_ridge(covariance_within(moments), ridge, mean_variance(moments))
    mean = moments.class_sums.sum(dim=0) / moments.num_samples
    class_points = (moments.class_sums[classes] / counts[:, None] - mean) @ whitening.T
    return ClassDensities(
        classes=classes,
        log_prior=log_class_prior(counts // runs),
        mean=(moments.pilot + mean).to(matmul_dtype),
        whitening=projection(whitening, matmul_dtype, torch.device("cpu")),
        class_points=class_points.to(matmul_dtype),
        geometry=class_geometry(class_points, counts, matmul_dtype),
        runs=runs,
    )
