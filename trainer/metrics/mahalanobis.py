"""Mahalanobis distances of features from the training samples, as scores of OOD samples.

- "mahalanobis": Lee et al. (NeurIPS 2018): one Gaussian per class, with the covariance that all
  classes share; the smallest squared distance from a class.
- "relative_mahalanobis": Ren et al. (arXiv 2106.09022): that distance minus the squared distance
  from the Gaussian of all samples, whatever their class.
- "mahalanobis_unit" and "relative_mahalanobis_unit": the same of features of unit length, as in
  Mahalanobis++ (Mueller and Hein, ICML 2025).

Larger is more likely OOD.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.base.errors import MetricError

ROWS_PER_BLOCK = 4096

FEATURE_SCORES = (
    "mahalanobis",
    "relative_mahalanobis",
    "mahalanobis_unit",
    "relative_mahalanobis_unit",
)
"""Scores by features, which no temperature changes."""


@dataclass(frozen=True)
class ClassGaussians:
    """Gaussians that share a covariance, in a space in which it is the identity.

    Attributes:
        whitening: Leads from features into that space, without the directions in which nothing
            varies. Float64, shape (dim, rank).
        means: Means in that space. Float64, shape (Gaussians, rank).
    """

    whitening: Tensor
    means: Tensor

    def distances(self, features: Tensor) -> Tensor:
        """The smallest squared distance of each sample from a mean.

        Args:
            features: Float64. Shape (samples, dim).

        Returns:
            Float64. Shape (samples,).
        """
        return torch.cdist(features @ self.whitening, self.means).amin(dim=1).square()


@dataclass(frozen=True)
class FeatureGaussians:
    """The Gaussians of the classes, and of all samples, of features as they are and of unit length.

    Attributes:
        classes: Of the classes, of both kinds of features in this order.
        everything: Of all samples, likewise.
    """

    classes: tuple[ClassGaussians, ClassGaussians]
    everything: tuple[ClassGaussians, ClassGaussians]

    def scores(self, features: Tensor) -> dict[str, Tensor]:
        """Each of FEATURE_SCORES; larger is more likely OOD.

        Args:
            features: Shape (samples, dim).

        Returns:
            Float64. Each of shape (samples,).
        """
        blocks = [self._block(rows.double()) for rows in features.split(ROWS_PER_BLOCK)]
        columns = zip(*blocks, strict=True)
        return dict(zip(FEATURE_SCORES, map(torch.cat, columns), strict=True))

    def _block(self, rows: Tensor) -> list[Tensor]:
        found = []
        for kind, values in enumerate((rows, F.normalize(rows))):
            own = self.classes[kind].distances(values)
            found += [own, own - self.everything[kind].distances(values)]
        return found


def fit_feature_gaussians(
    batches: Iterable[tuple[Tensor, Tensor]], num_classes: int
) -> FeatureGaussians:
    """Fits all Gaussians in one pass over training samples; classes without one have none.

    Sums are those of float64. Directions whose variance is no more than that of rounding float32
    are left out, as in a pseudo-inverse.

    Args:
        batches: Features (samples, dim) and class indices (samples,) of training samples.
        num_classes: Number of classes.

    Raises:
        MetricError: There are no samples, a feature is not finite, or no class varies.
    """
    plain, unit = _FeatureSums(num_classes), _FeatureSums(num_classes)
    for features, labels in batches:
        if len(labels):
            values = features.double()
            plain.add(values, labels)
            unit.add(F.normalize(values), labels)
    if not plain or not plain.products.isfinite().all():
        raise MetricError(
            "the features of the training samples have no covariance",
            "give at least one sample, and finite features",
        )
    return FeatureGaussians(
        (plain.gaussians_of_classes(), unit.gaussians_of_classes()),
        (plain.gaussian_of_all(), unit.gaussian_of_all()),
    )


@dataclass
class _FeatureSums:
    """Sums of features about an origin, so that they lose no digits far from zero.

    Attributes:
        counts: Samples of each class. Shape (classes,).
        features: Sum of the features of each class. Shape (classes, dim).
        products: Sum of the products of all pairs of features. Shape (dim, dim).
        origin: Shape (dim,).
    """

    num_classes: int
    counts: Tensor = field(init=False)
    features: Tensor = field(init=False)
    products: Tensor = field(init=False)
    origin: Tensor = field(init=False)

    def add(self, values: Tensor, labels: Tensor) -> None:
        """Adds samples: float64 features (samples, dim) and class indices (samples,)."""
        if not self:
            dim = values.shape[1]
            self.origin = values.mean(dim=0)
            self.counts = values.new_zeros(self.num_classes)
            self.features = values.new_zeros(self.num_classes, dim)
            self.products = values.new_zeros(dim, dim)
        values = values - self.origin
        self.counts.add_(torch.bincount(labels, minlength=self.num_classes))
        self.features.index_add_(0, labels, values)
        self.products.addmm_(values.T, values)

    def __bool__(self) -> bool:
        """Whether there are samples."""
        return hasattr(self, "origin")

    def gaussians_of_classes(self) -> ClassGaussians:
        """One Gaussian for each class that has samples."""
        present = self.counts > 0
        return self._gaussians(self.counts[present, None], self.features[present])

    def gaussian_of_all(self) -> ClassGaussians:
        """One Gaussian for all samples."""
        return self._gaussians(self.counts.sum()[None, None], self.features.sum(0, keepdim=True))

    def _gaussians(self, counts: Tensor, sums: Tensor) -> ClassGaussians:
        """Gaussians of groups by their counts (groups, 1) and sums of features (groups, dim)."""
        total, means = counts.sum(), sums / counts
        covariance = (self.products - (means * counts).T @ means) / total
        variances, directions = torch.linalg.eigh(covariance)
        size = (self.products.diagonal() / total + self.origin.square()).amax()
        rounding = len(covariance) * torch.finfo(torch.float32).eps ** 2 * float(size)
        kept = variances > rounding
        if not kept.any():
            raise MetricError("the features of every class are all equal", "train longer")
        whitening = directions[:, kept] / variances[kept].sqrt()
        return ClassGaussians(whitening, (means + self.origin) @ whitening)
