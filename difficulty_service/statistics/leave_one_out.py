"""What a squared distance would be had the sample not taken part in the fit, in closed form.

Removing a sample changes its class mean, the counts and the scatter by a matrix of low rank, so
no refit is needed; `docs/method.md` has the derivation. A shrunk covariance keeps its ridge in
proportion to the rest, and one that was cut to fewer directions keeps those directions.
"""

import torch
from torch import Tensor

from difficulty_service.statistics.gaussian import Gaussians

SINGULAR = 1e-12
"""Share of a direction's variance below which the sample that left was all there was in it."""


def leave_one_row_out(
    squared_distance: Tensor, group_rows: Tensor, num_rows: int, intensity: float
) -> Tensor:
    """Squared distance of each sample to Gaussians fitted without it.

    Args:
        squared_distance: To the mean of its group, all samples included. Shape (samples,).
        group_rows: Samples that mean was taken over. Shape (samples,).
        num_rows: Samples the covariance was divided by.
        intensity: Shrinkage of the covariance.

    Returns:
        NaN where the group has no other sample or the covariance becomes singular.
        Shape (samples,), float64.
    """
    share = squared_distance.double() / num_rows
    growth = group_rows.double() / (group_rows - 1)
    remaining = 1 - (1 - intensity) * growth * share
    result = (num_rows - 1) * growth.square() * share / remaining
    return torch.where((group_rows > 1) & (remaining > SINGULAR), result, torch.nan)


def leave_sample_rows_out(
    gram: Tensor, group_rows: Tensor, num_rows: int, intensity: float
) -> Tensor:
    """The same where a sample has several rows, which all leave together.

    Args:
        gram: Inner products, in the metric of the covariance, of a sample's rows after
            subtracting the mean of their group. Shape (samples, runs, runs).
        group_rows: Rows, not samples, that mean was taken over. Shape (samples,).
        num_rows: Rows the covariance was divided by.
        intensity: Shrinkage of the covariance.

    Returns:
        NaN where the group has no other sample. Shape (samples, runs), float64.
    """
    runs = gram.shape[1]
    inner = gram.double() / num_rows
    identity = torch.eye(runs, dtype=torch.float64)
    others = (group_rows - runs).double()[:, None, None]
    removed = identity + 1 / others  # also moves the group's mean away from each row
    remaining = identity - (1 - intensity) * inner @ removed
    usable = (others[:, 0, 0] > 0) & (torch.linalg.det(remaining) > SINGULAR)
    remaining[~usable] = identity
    quadratic = torch.linalg.solve(remaining, inner)
    result = (num_rows - runs) * ((removed @ quadratic) * removed.mT).sum(dim=2)
    return torch.where(usable[:, None], result, torch.nan)


def leave_one_out_rmd(
    gaussians: Gaussians, features: Tensor, labels: Tensor, md: Tensor, md_agnostic: Tensor
) -> Tensor:
    """RMD of samples that took part in the fit, each as if it had not.

    Args:
        gaussians: Fitted to these samples among others.
        features: The rows of one sample follow each other. Shape (samples * runs, dim).
        labels: Of each row, or -1 for a class that was not fitted. Shape (samples * runs,).
        md: Squared distance of each row to its class mean. Shape (samples * runs,).
        md_agnostic: Squared distance of each row to the mean. Shape (samples * runs,).

    Returns:
        Mean over the runs of a sample; NaN for the only sample of a class.
        Shape (samples,), float64.
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


def _grams(rows: Tensor, runs: int) -> Tensor:
    """Inner products among each sample's rows; shape (samples, runs, runs)."""
    rows = rows.reshape(-1, runs, rows.shape[1])
    return rows @ rows.mT
