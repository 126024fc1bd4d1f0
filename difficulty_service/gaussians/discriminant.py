"""The linear discriminant of RMD: the few directions in which classes differ.

All other directions cancel from RMD. `docs/method.md` derives both forms of the map.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg.lapack
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.gaussians.gaussian import Gaussians
from difficulty_service.gaussians.products import matmul, project

SMALLEST_SPREAD = 1e-13
"""Between-class variance, as a share of the largest, below which a direction is rounding noise."""

SMALLEST_PIVOT = 1e-5
"""Smallest pivot, as a share of the largest, of a Cholesky root whose inverse is accurate to eight
digits."""


@dataclass(frozen=True)
class Discriminant:
    """A linear map under which RMD is one squared distance plus a constant per class.

    Attributes:
        linear_map: Upper trapezoidal. Shape (rank, dim).
        class_points: Class means under the map. Shape (classes, rank).
        class_constants: RMD minus the squared distance under the map. Shape (classes,).
    """

    linear_map: Tensor
    class_points: Tensor
    class_constants: Tensor


def compute_discriminant(gaussians: Gaussians, whitened: Tensor, norms: Tensor) -> Discriminant:
    """The discriminant of Gaussians, in the cheaper of its two forms where that is accurate.

    Their covariances are neither shrunk nor truncated. `whitened` are the class means minus the
    mean, 0 for unused classes, of shape (classes, dim), and `norms` their squared lengths.
    """
    classes, dim = whitened.shape
    if classes > dim and gaussians.matmul_dtype == torch.float32:
        discriminant = _full_rank_discriminant(gaussians, whitened, norms)
        if discriminant is not None:
            return discriminant
    return _low_rank_discriminant(gaussians, whitened)


def _full_rank_discriminant(
    gaussians: Gaussians, whitened: Tensor, norms: Tensor
) -> Discriminant | None:
    """The Cholesky root of the difference of both precisions, for classes that differ everywhere.

    Several times cheaper than the low-rank form and accurate to about eight digits; None where
    classes differ too little in some direction for that accuracy.
    """
    whitening = gaussians.within.whitening
    difference = _precision(whitening) - _precision(gaussians.agnostic.whitening)
    root, failed = scipy.linalg.lapack.dpotrf(difference, lower=1)
    if failed or root.diagonal().min() < SMALLEST_PIVOT * root.diagonal().max():
        return None
    inverse, _ = scipy.linalg.lapack.dtrtri(root, lower=1)
    points = project(torch.from_numpy(np.tril(inverse)), project(whitening.T, whitened))
    constants = norms - points.square().sum(dim=1)
    return Discriminant(torch.from_numpy(np.tril(root).T), points, constants)


def _precision(whitening: Tensor) -> NDArray[np.float64]:
    """Inverse of the covariance that a triangular map whitens, undefined above the diagonal."""
    precision, _ = scipy.linalg.lapack.dlauum(whitening.numpy(), lower=1)
    return precision


def _low_rank_discriminant(gaussians: Gaussians, whitened: Tensor) -> Discriminant:
    """The basis that makes both covariances diagonal, with the smallest possible number of rows.

    Where the covariance within classes is the identity and the one between classes has the
    diagonal b, a squared coordinate has the weight a = b / (1 + b) in RMD.
    """
    counts = gaussians.moments.counts.double()
    offsets = (gaussians.class_means - gaussians.mean).nan_to_num()
    all_means = matmul(offsets, gaussians.within.whitening.T)
    between = all_means * (counts / counts.sum()).sqrt()[:, None]
    spread, basis = _principal_directions(between)
    weight = spread / (1 + spread)
    coordinates = matmul(whitened, basis)
    # QR makes the map upper trapezoidal, which saves up to half of the multiplications.
    rotation, trapezoid = torch.linalg.qr(
        weight.sqrt()[:, None] * matmul(basis.T, gaussians.within.whitening)
    )
    points = matmul(coordinates / weight.sqrt(), rotation)
    return Discriminant(trapezoid, points, -(coordinates.square() / spread).sum(dim=1))


def _principal_directions(between: Tensor) -> tuple[Tensor, Tensor]:
    """Variances of some rows above rounding noise, and their directions, shape (dim, rank)."""
    classes, dim = between.shape
    if classes < dim:
        spread, left = torch.linalg.eigh(matmul(between, between.T))
        kept = spread > SMALLEST_SPREAD * spread[-1]
        return spread[kept], between.T @ left[:, kept] / spread[kept].sqrt()
    spread, basis = torch.linalg.eigh(matmul(between.T, between))
    kept = spread > SMALLEST_SPREAD * spread[-1]
    return spread[kept], basis[:, kept]
