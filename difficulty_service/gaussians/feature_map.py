"""Features with their similarities to some landmarks, in which a linear rule can be a curved one.

The class means and the shared covariance of Gaussians separate classes by planes. Appended to the
features, similarities to a thousand samples bend the planes at the cost of a few matrix products
(Rahimi and Recht 2007 give the idea, with random directions in place of samples).

Features scaled to unit length around the mean of a dataset.

With few samples, unit vectors tell classes apart better than features as they are;
`docs/findings.md` has the figures.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.factor import ALL_THE_SAME
from difficulty_service.gaussians.moments import Moments
from difficulty_service.gaussians.products import (
    Workspace,
    exp,
    matmul,
    rounded_matmul,
    squared_lengths,
)

SMALLEST_LENGTH = 1e-6
"""Distance from the centre, as a share of the centre's own length, that is only rounding noise."""

SMALLEST_FLOAT64_LENGTH = 1e-12
"""The same where both features and centre are in float64."""

SMALLEST_SPREAD = 1e-6
"""Total variance of unit vectors below which all features are the same."""


def scale_to_unit_length(features: Tensor, centre: Tensor) -> Tensor:
    """Features (samples, dim) minus a centre (dim,), divided by their distance from it.

    In the wider dtype of both; zero where features differ from the centre by rounding only.
    """
    offsets = features - centre
    lengths = squared_lengths(offsets).sqrt_()[:, None]
    in_float64 = features.dtype == centre.dtype == torch.float64
    smallest = SMALLEST_FLOAT64_LENGTH if in_float64 else SMALLEST_LENGTH
    distinct = lengths > smallest * centre.norm()
    return offsets.mul_(torch.where(distinct, 1 / lengths, 0.0))


def require_spread(moments: Moments) -> None:
    """Raises StatisticsError where unit vectors with these moments are all the same."""
    total = float(moments.scatter.trace()) / moments.num_samples if moments.num_samples else 1.0
    if total < SMALLEST_SPREAD:
        raise StatisticsError(ALL_THE_SAME)


SHARE_OF_FEATURES = 0.05
"""Standard deviation of each feature beside similarities, which lie between 0 and 1."""


@dataclass(frozen=True)
class FeatureMap:
    """A map from features to scaled unit vectors and similarities; made by `make_feature_map`.

    Attributes:
        centre: Point around which features are scaled to unit length. Shape (dim,).
        scale: Factor of each dimension of the unit vectors. Shape (dim,).
        landmarks: Unit vectors to compare with; there may be none. Shape (landmarks, dim).
        width: Squared distance at which a similarity is exp(-1/2).
        rounded: Whether unit vectors, landmarks and their inner products are rounded to bfloat16.
    """

    centre: Tensor
    scale: Tensor
    landmarks: Tensor
    width: float
    rounded: bool = False

    @property
    def dim(self) -> int:
        """Length of a mapped vector."""
        return len(self.centre) + len(self.landmarks)

    def plain(self) -> "FeatureMap":
        """The map to the unit vectors alone, all dimensions as they are."""
        return replace(self, scale=torch.ones_like(self.scale), landmarks=self.landmarks[:0])

    def __call__(self, features: Tensor, work: Workspace) -> Tensor:
        """Maps features as they are, (samples, dim), to scaled unit vectors, then similarities.

        On the device of the map and in the dtype of the scale, of shape (samples, dim +
        landmarks), in memory that the next call of the same thread overwrites.
        """
        units = scale_to_unit_length(features, self.centre).to(self.scale.dtype)
        mapped = work.matrix("mapped", len(features), self.dim, units)
        dim = len(self.centre)
        torch.mul(units, self.scale, out=mapped[:, :dim])
        if len(self.landmarks):
            landmarks = self.landmarks
            multiply = rounded_matmul if self.rounded else matmul
            similar = multiply(units, landmarks.T, out=mapped[:, dim:])
            # From inner products to squared distances; a sample at the centre has length zero.
            similar.sub_(squared_lengths(units)[:, None] / 2).sub_(squared_lengths(landmarks) / 2)
            exp(similar.div_(self.width), out=similar)
        return mapped


def make_feature_map(
    rows: Tensor, num_landmarks: int, generator: torch.Generator, dtype: torch.dtype
) -> FeatureMap:
    """A map whose centre, scale, landmarks and width are those of some features, (samples, dim).

    So many of their rows are landmarks, or all of them. StatisticsError where all are the same.
    """
    centre = rows.mean(dim=0, dtype=torch.float64)
    units = scale_to_unit_length(rows, centre)
    spread = units.var(dim=0, unbiased=False)
    if not float(spread.sum()) >= SMALLEST_SPREAD:
        raise StatisticsError(ALL_THE_SAME)
    # A dimension that hardly varies is not blown up, and a constant one stays zero.
    scale = SHARE_OF_FEATURES * spread.clamp(min=SMALLEST_SPREAD * float(spread.max())).rsqrt()
    chosen = torch.randperm(len(rows), generator=generator)[:num_landmarks]
    landmarks = units[chosen.sort().values]
    width = _median(units, landmarks)
    return FeatureMap(centre.to(dtype), scale.to(dtype), landmarks.to(dtype), width)


def _median(units: Tensor, landmarks: Tensor) -> float:
    """Median squared distance of unit vectors to landmarks; 1 where they coincide or are none."""
    if not len(landmarks):
        return 1.0
    distances = torch.cdist(units[:: max(1, len(units) // 1000)], landmarks).square_()
    return float(distances.median()) or 1.0
