"""What tells classes apart: the few directions that do not cancel from RMD.

`docs/method.md` derives both forms.
"""

import numpy as np
import scipy.linalg.lapack
import torch
from torch import Tensor

from difficulty_service.statistics.gaussian import Gaussians
from difficulty_service.statistics.products import matmul

SMALLEST_SPREAD = 1e-13
"""Between-class variance, as a share of the largest, below which a direction is rounding noise."""

LEAST_ROOT = 1e-5
"""Smallest pivot, as a share of the largest, of a root whose inverse keeps eight digits."""


def contrast_of(
    gaussians: Gaussians, whitened: Tensor, norms: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The map under which RMD is one squared distance plus a constant per class.

    Args:
        gaussians: With plain covariances, neither shrunk nor cut.
        whitened: Class means minus the mean, whitened; 0 for unused classes. Shape (classes, dim).
        norms: Squared lengths of those rows. Shape (classes,).

    Returns:
        The map, shape (rank, dim); the class means under it, shape (classes, rank); the
        constants, shape (classes,).
    """
    classes, dim = whitened.shape
    if classes > dim and gaussians.options.products == torch.float32:
        found = _contrast_in_all_directions(gaussians, whitened, norms)
        if found is not None:
            return found
    return _contrast_between_classes(gaussians, whitened)


def _contrast_in_all_directions(
    gaussians: Gaussians, whitened: Tensor, norms: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Classes differ in every direction, so the map is the root of a difference of precisions.

    Several times cheaper than the basis below, to about eight digits; None where classes differ
    too little in some direction for that.
    """
    within, agnostic = (
        matmul(factor.whitening.T, factor.whitening)
        for factor in (gaussians.within, gaussians.agnostic)
    )
    root, failed = scipy.linalg.lapack.dpotrf((within - agnostic).numpy(), lower=1)
    if failed or root.diagonal().min() < LEAST_ROOT * root.diagonal().max():
        return None
    inverse, _ = scipy.linalg.lapack.dtrtri(root, lower=1)
    points = matmul(matmul(whitened, gaussians.within.whitening), torch.from_numpy(inverse.T))
    return torch.from_numpy(np.tril(root).T), points, norms - points.square().sum(dim=1)


def _contrast_between_classes(
    gaussians: Gaussians, whitened: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same from the basis that makes both covariances diagonal, with as few rows as can be.

    Where the covariance within classes is the identity and the one between them has the entries
    b, a squared coordinate counts a = b / (1 + b) in RMD.
    """
    counts = gaussians.moments.counts.double()
    offsets = (gaussians.class_means - gaussians.mean).nan_to_num()
    all_means = matmul(offsets, gaussians.within.whitening.T)
    between = all_means * (counts / counts.sum()).sqrt()[:, None]
    spread, basis = _principal_directions(between)
    weight = spread / (1 + spread)
    coordinates = matmul(whitened, basis)
    # QR makes the map upper trapezoidal, which saves up to half of the products of a chunk.
    rotation, trapezoid = torch.linalg.qr(
        weight.sqrt()[:, None] * matmul(basis.T, gaussians.within.whitening)
    )
    points = matmul(coordinates / weight.sqrt(), rotation)
    return trapezoid, points, -(coordinates.square() / spread).sum(dim=1)


def _principal_directions(between: Tensor) -> tuple[Tensor, Tensor]:
    """Variances above rounding noise and their directions, shape (dim, rank), of rows."""
    classes, dim = between.shape
    if classes < dim:
        spread, left = torch.linalg.eigh(matmul(between, between.T))
        kept = spread > SMALLEST_SPREAD * spread[-1]
        return spread[kept], between.T @ left[:, kept] / spread[kept].sqrt()
    spread, basis = torch.linalg.eigh(matmul(between.T, between))
    kept = spread > SMALLEST_SPREAD * spread[-1]
    return spread[kept], basis[:, kept]
