"""Squared distances to every class, each sample as if it had not taken part in the fit.

Removing a sample moves the mean of its class and takes a term of low rank from the covariance, so
that the distances after it follow from those before it; `docs/method.md` has the derivation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.gaussians.products import Workspace, matmul

SINGULAR = 1e-12
"""Share of a direction's variance below which the removed sample was all there was in it."""


@dataclass(frozen=True)
class LeftOutSample:
    """Distances of samples that were removed from the fit.

    Attributes:
        distances: Squared, unitless, to each class; NaN in the own column of a sample whose class
            has no other one, and in the whole row where the covariance becomes singular.
            Shape (samples * runs, classes).
        leverage: Share of the variance along a sample that goes with it, from 0 to 1.
            Shape (samples,), float64.
    """

    distances: Tensor
    leverage: Tensor


def class_distances(points: Tensor, class_points: Tensor) -> Tensor:
    """Squared distances (samples, classes), unitless, of whitened rows to whitened class means."""
    lengths = points.square().sum(dim=1)[:, None] + class_points.square().sum(dim=1)
    return (lengths - 2 * points @ class_points.T).clamp(min=0)


@dataclass(frozen=True)
class ClassGeometry:
    """The class means in the space where the covariance is 1.

    Attributes:
        norms: Squared lengths, float64. Shape (classes,).
        between: Squared distances (classes, classes), in the dtype of the products to come.
        counts: Rows that each mean was taken over. Shape (classes,).
        num_rows: Their sum.
    """

    norms: Tensor
    between: Tensor
    counts: Tensor
    num_rows: int


def class_geometry(
    class_points: Tensor, counts: Tensor, dtype: torch.dtype = torch.float64
) -> ClassGeometry:
    """The geometry of whitened class means (classes, rank), for inner products of a dtype."""
    class_points = class_points.double()
    norms = class_points.square().sum(dim=1)
    between = matmul(class_points, class_points.T)
    between.mul_(-2).add_(norms).add_(norms[:, None]).clamp_(min=0)
    return ClassGeometry(norms, between.to(dtype), counts, int(counts.sum()))


def distances_of_rows_left_out(
    lengths: Tensor,
    products: Tensor,
    labels: Tensor,
    classes: ClassGeometry,
    work: Workspace,
    *,
    relative: bool = False,
) -> LeftOutSample:
    """As `class_distances_left_out` for one row per sample, from inner products with the means.

    Several times cheaper, because the rows themselves are not needed: the inner product of the
    offsets from two means follows from the three distances, by the law of cosines.

    Args:
        lengths: Squared lengths of the whitened rows. Shape (samples,).
        products: Of each row with -2 times each class mean; the distances overwrite them, in the
            same dtype. Shape (samples, classes).
        relative: Whether the lengths are only right up to a number for each row, so that distances
            may be negative.
    """
    num_rows = classes.num_rows
    place = labels[:, None]
    dtype = products.dtype
    distances = products.add_(classes.norms.to(dtype)).add_(lengths.to(dtype)[:, None])
    if not relative:
        distances.clamp_(min=0)  # what rounding made negative
    own = distances.gather(1, place).double()
    rows_of_class = classes.counts[labels].double()[:, None]
    alone = rows_of_class == 1
    # A sample alone in its class is that class's mean: nothing changes but the own column.
    growth = torch.where(alone, 1.0, rows_of_class / (rows_of_class - 1))
    share = growth / num_rows
    left = 1 - share * own
    inner = work.like("inner", distances)
    torch.index_select(classes.between, 0, labels, out=inner)
    torch.sub(distances, inner, out=inner).add_(own.to(dtype))
    distances.add_(inner.square_().mul_((share / left / 4).to(dtype)))
    own = (growth.square() * own / left).masked_fill_(alone, torch.nan)
    # NaN where the covariance becomes singular, without another pass and without a wait.
    factors = torch.full_like(left, (num_rows - 1) / num_rows)
    factors.masked_fill_(left <= SINGULAR, torch.nan)
    distances.scatter_(1, place, own.to(dtype)).mul_(factors.to(dtype))
    return LeftOutSample(distances, 1 - left[:, 0])


def class_distances_left_out(
    points: Tensor, labels: Tensor, class_points: Tensor, counts: Tensor, runs: int = 1
) -> LeftOutSample:
    """Squared distances of samples to all classes, each sample removed from the fit.

    A ridge on the covariance keeps its proportion to the rest.

    Args:
        points: Whitened rows; those of a sample are adjacent and removed together, one per
            augmentation run. Shape (samples * runs, rank).
        labels: Class of each sample, one that was fitted. Shape (samples,).
        class_points: Whitened class means. Shape (classes, rank).
        counts: Rows, not samples, that each mean was taken over. Shape (classes,).
    """
    num_rows = int(counts.sum())
    points, class_points = points.double(), class_points.double()
    offsets = (points - class_points[labels].repeat_interleave(runs, dim=0)).view(
        len(labels), runs, -1
    )
    gram = offsets @ offsets.mT
    others = (counts[labels] - runs).double()[:, None, None]
    alone = others[:, 0, 0] <= 0
    # Without the sample, its class's mean is further away by this map of its offsets.
    moved = torch.eye(runs, dtype=torch.float64) + 1 / others.masked_fill(others <= 0, torch.inf)
    # By the Woodbury identity; `moved` is symmetric, and so is this.
    remaining = num_rows * torch.linalg.inv(moved) - gram
    # Inner products of the offsets with the differences from each row to each class mean.
    to_own = (offsets * class_points[labels][:, None]).sum(dim=2)
    to_classes = gram[:, :, :, None] + (to_own[:, :, None] - offsets @ class_points.T)[:, :, None]
    left = torch.linalg.det(remaining @ moved / num_rows)
    usable = left > SINGULAR
    remaining[~usable] = torch.eye(runs, dtype=torch.float64)
    solved = torch.linalg.solve(remaining, to_classes.flatten(2)).view_as(to_classes)
    distances = class_distances(points, class_points).view(len(labels), runs, -1)
    distances = distances + (to_classes * solved).sum(dim=1)
    inner = moved @ gram
    own = (inner @ moved + inner @ torch.linalg.solve(remaining, inner.mT)).diagonal(0, 1, 2)
    place = labels[:, None, None].expand(-1, runs, 1)
    own = own.masked_fill(alone[:, None], torch.nan)
    distances = distances.scatter(2, place, own[:, :, None]) * ((num_rows - runs) / num_rows)
    distances[~usable] = torch.nan
    return LeftOutSample(distances.view(len(labels) * runs, -1), 1 - left)
