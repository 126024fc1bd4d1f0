"""Leave-one-out distances in closed form: each sample is scored as if it were not in the fit.

Removing a sample changes its class mean, the counts and the scatter by a matrix of low rank, so
no refit is needed; `docs/method.md` has the derivation. A shrunk covariance keeps its ridge in
proportion to the rest, a truncated one keeps its directions, and features that were scaled to unit
length keep their centre.
"""

import torch
from torch import Tensor

from difficulty_service.gaussians.class_distances import SINGULAR, class_distances_left_out
from difficulty_service.gaussians.gaussian import Gaussians


def leave_one_row_out(
    squared_distance: Tensor, group_rows: Tensor, num_rows: int, intensity: float
) -> Tensor:
    """Leave-one-out squared distances for samples of one row each. Shape (samples,), float64.

    From the squared distance of each row to the mean of its group, which includes the row, and the
    number of rows in that group. NaN if the group has no other row or the covariance becomes
    singular.
    """
    share = squared_distance.double() / num_rows
    growth = group_rows.double() / (group_rows - 1)
    remaining = 1 - (1 - intensity) * growth * share
    result = (num_rows - 1) * growth.square() * share / remaining
    return torch.where((group_rows > 1) & (remaining > SINGULAR), result, torch.nan)


def leave_sample_rows_out(
    gram: Tensor, group_rows: Tensor, num_rows: int, intensity: float
) -> Tensor:
    """Leave-one-out squared distances for samples of several rows, which are removed together.

    Shape (samples, runs), float64; NaN if the group has no other sample or the covariance becomes
    singular. The group has so many rows, not samples; the Gram matrix (samples, runs, runs) is of a
    sample's rows minus the mean of their group, in the metric of the covariance.
    """
    runs = gram.shape[1]
    inner = gram.double() / num_rows
    identity = torch.eye(runs, dtype=torch.float64)
    others = (group_rows - runs).double()[:, None, None]
    removed = identity + 1 / others  # accounts for the shift of the group's mean
    remaining = identity - (1 - intensity) * inner @ removed
    usable = (others[:, 0, 0] > 0) & (torch.linalg.det(remaining) > SINGULAR)
    remaining[~usable] = identity
    quadratic = torch.linalg.solve(remaining, inner)
    result = (num_rows - runs) * ((removed @ quadratic) * removed.mT).sum(dim=2)
    return torch.where(usable[:, None], result, torch.nan)


def leave_one_out_rmd(
    gaussians: Gaussians, features: Tensor, labels: Tensor, md: Tensor, md_agnostic: Tensor
) -> Tensor:
    """RMD of samples of the fit, each relative to Gaussians fitted without it.

    Args:
        features: Feature rows; those of one sample are adjacent. Shape (samples * runs, dim).
        labels: Label of each row, or -1 for a class that was not fitted. Shape (samples * runs,).
        md: Squared distance of each row to its class mean; `md_agnostic` to the mean of all.

    Returns:
        Mean over the runs of each sample, shape (samples,), float64; NaN for the only one of a
        class.
    """
    runs, num_rows = gaussians.options.runs, gaussians.moments.num_samples
    factors = (gaussians.within, gaussians.agnostic)
    class_rows = gaussians.moments.counts[labels.clamp(min=0)].masked_fill(labels < 0, 0)
    groups = (class_rows, torch.full_like(class_rows, num_rows))
    if runs == 1:
        own, agnostic = (
            leave_one_row_out(distance, rows, num_rows, factor.intensity)
            for distance, rows, factor in zip((md, md_agnostic), groups, factors, strict=True)
        )
        return own - agnostic
    features = gaussians.prepare(features)
    centres = (gaussians.class_means[labels.clamp(min=0)], gaussians.mean)
    own, agnostic = (
        leave_sample_rows_out(
            _grams((features.double() - centre) @ factor.whitening.T, runs),
            rows[::runs],
            num_rows,
            factor.intensity,
        )
        for centre, rows, factor in zip(centres, groups, factors, strict=True)
    )
    return (own - agnostic).mean(dim=1)


def compare_left_out(
    gaussians: Gaussians, features: Tensor, labels: Tensor, md_agnostic: Tensor
) -> tuple[Tensor, Tensor]:
    """Nearest label and label margin of samples of the fit, each left out of it. Shapes (samples,).

    Arguments as for `leave_one_out_rmd`; the covariances are plain, and the labels were all fitted.
    Nearest is the class with the smallest mean distance over the runs. The mean margin is the
    distance to the own class minus the smallest one to another class; above zero, another class
    fits better. A sample alone in its class has no distance to that; its margin is that of the
    Gaussian of all samples. A class of one sample is nobody else's nearest one. NaN where there is
    no other class.
    """
    runs = gaussians.options.runs
    fitted = (gaussians.moments.counts > 0).nonzero().flatten()
    own = torch.searchsorted(fitted, labels[::runs].contiguous())
    distances = class_distances_left_out(
        gaussians.whiten(features),
        own,
        gaussians.whitened_means[fitted],
        gaussians.moments.counts[fitted],
        runs,
    ).distances
    place = own.repeat_interleave(runs)[:, None]
    own_distances = distances.gather(1, place)[:, 0]
    own_distances = torch.where(own_distances.isnan(), md_agnostic, own_distances)
    distances = distances.nan_to_num(nan=torch.inf)
    distances[:, gaussians.moments.counts[fitted] == runs] = torch.inf
    nearest = fitted[distances.view(-1, runs, len(fitted)).mean(dim=1).argmin(dim=1)]
    margins = own_distances - distances.scatter(1, place, torch.inf).amin(dim=1)
    margins = torch.where(torch.isfinite(margins), margins, torch.nan)
    return nearest, margins.view(-1, runs).mean(dim=1)


def _grams(rows: Tensor, runs: int) -> Tensor:
    """Inner products among each sample's rows; shape (samples, runs, runs)."""
    rows = rows.reshape(-1, runs, rows.shape[1])
    return rows @ rows.mT
