"""Mahalanobis distances of features from the classes of the training samples.

Lee et al. (NeurIPS 2018): one Gaussian per class, with the covariance that all classes share. The
smallest squared distance from a class is the OOD score of a sample, larger is more likely OOD.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError

ROWS_PER_BLOCK = 4096


@dataclass(frozen=True)
class ClassGaussians:
    """The Gaussians of classes, in a space in which their covariance is the identity.

    Attributes:
        whitening: Leads from features into that space, without the directions in which no class
            varies. Float64, shape (dim, rank).
        means: Means of the classes in that space. Float64, shape (classes, rank).
    """

    whitening: Tensor
    means: Tensor

    def distances(self, features: Tensor) -> Tensor:
        """The smallest squared distance of each sample from a class.

        Args:
            features: Shape (samples, dim).

        Returns:
            Float64. Shape (samples,).
        """
        smallest = [
            torch.cdist(rows.double() @ self.whitening, self.means).amin(dim=1).square()
            for rows in features.split(ROWS_PER_BLOCK)
        ]
        return torch.cat(smallest)


def fit_class_gaussians(
    batches: Iterable[tuple[Tensor, Tensor]], num_classes: int
) -> ClassGaussians:
    """Fits the Gaussians in one pass over training samples; classes without one have none.

    Sums are those of float64. Directions whose variance is no more than that of rounding float32
    are left out, as in a pseudo-inverse.

    Args:
        batches: Features (samples, dim) and class indices (samples,) of training samples.
        num_classes: Number of classes.

    Raises:
        MetricError: There are no samples, a feature is not finite, or no class varies.
    """
    sums = _sum(batches, num_classes)
    if sums is None or not sums.products.isfinite().all():
        raise MetricError(
            "the features of the training samples have no covariance",
            "give at least one sample, and finite features",
        )
    present = sums.counts > 0
    counts, total = sums.counts[present, None], sums.counts.sum()
    means = sums.features[present] / counts
    covariance = (sums.products - (means * counts).T @ means) / total
    variances, directions = torch.linalg.eigh(covariance)
    size = (sums.products.diagonal() / total + sums.origin.square()).amax()
    rounding = len(covariance) * torch.finfo(torch.float32).eps ** 2 * float(size)
    kept = variances > rounding
    if not kept.any():
        raise MetricError("the features of every class are all equal", "train longer")
    whitening = directions[:, kept] / variances[kept].sqrt()
    return ClassGaussians(whitening, (means + sums.origin) @ whitening)


@dataclass(frozen=True)
class _Sums:
    """Sums of features about an origin, so that they lose no digits far from zero.

    Attributes:
        counts: Samples of each class. Shape (classes,).
        features: Sum of the features of each class. Shape (classes, dim).
        products: Sum of the products of all pairs of features. Shape (dim, dim).
        origin: Shape (dim,).
    """

    counts: Tensor
    features: Tensor
    products: Tensor
    origin: Tensor


def _sum(batches: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> _Sums | None:
    """Sums of all batches in float64; None without samples."""
    sums: _Sums | None = None
    for features, labels in batches:
        if not len(labels):
            continue
        values = features.double()
        if sums is None:
            origin, dim = values.mean(dim=0), values.shape[1]
            counts, products = values.new_zeros(num_classes), values.new_zeros(dim, dim)
            sums = _Sums(counts, values.new_zeros(num_classes, dim), products, origin)
        values = values - sums.origin
        sums.counts.add_(torch.bincount(labels, minlength=num_classes))
        sums.features.index_add_(0, labels, values)
        sums.products.addmm_(values.T, values)
    return sums
