"""Fits Gaussians to labelled features in one pass, or in more if the numerics require it."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.gaussians.batches import (
    Batch,
    BatchSource,
    TensorBatches,
    TransformedBatches,
    with_labels,
)
from difficulty_service.gaussians.factor import WORST_CONDITION, condition_number
from difficulty_service.gaussians.feature_map import require_spread, scale_to_unit_length
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.gaussian import (
    MATMUL_DTYPES,
    FourthPowers,
    Gaussians,
    covariances,
    fit_gaussians,
)
from difficulty_service.gaussians.moments import (
    PILOT_ROWS,
    Moments,
    accumulate_moments,
    compute_moments,
    pilot_of,
)
from difficulty_service.gaussians.products import Workspace, one_thread_per_product
from difficulty_service.gaussians.ridge import MOST_SAMPLES, LabelledRows, choose_ridge, needs_ridge

PILOT_CONDITION = 1e5
"""Condition number of the pilot rows above which float64 products are used from the start."""

ROWS_PER_DIMENSION = 8
"""Rows per dimension that estimate the condition number within a factor of about four."""

FLOAT32_CONDITION = 1e6
"""Condition number above which a float32 fit is repeated with float64 products."""


def fit(
    features: Tensor, labels: Tensor, num_classes: int, options: FitOptions | None = None
) -> Gaussians:
    """Fits Gaussians to features in memory; float64 features get float64 products.

    Args:
        features: Shape (samples, dim).
        labels: Class indices below `num_classes`. Shape (samples,).
        options: Options of the fit; None for the defaults.

    Raises:
        StatisticsError: A feature is not finite, or all features are the same.
    """
    source = TensorBatches(features, labels.cpu())
    return fit_batches(source, pilot_rows(features), num_classes, options or FitOptions())


def pilot_rows(features: Tensor, share: int = 1) -> Tensor:
    """Evenly spaced rows, (rows, dim), enough as a pilot and to estimate the condition number."""
    num_rows = -(-max(PILOT_ROWS, ROWS_PER_DIMENSION * features.shape[1]) // share)
    return features[:: max(1, len(features) // num_rows)][:num_rows]


@one_thread_per_product()
def fit_batches(
    source: BatchSource[Batch], first_rows: Tensor, num_classes: int, options: FitOptions
) -> Gaussians:
    """Fits Gaussians to batches, summed in their order, some of whose rows `pilot_rows` gave."""
    pilot = pilot_of(first_rows)

    def fit_with(matmul_dtype: str) -> Gaussians:
        dtype = MATMUL_DTYPES[matmul_dtype]
        moments = accumulate_moments(source, pilot, num_classes, matmul_dtype=dtype)
        chosen = replace(options, matmul_dtype=matmul_dtype)
        if needs_ridge(moments, options):
            return _fit_with_ridge(source, moments, chosen)
        powers = _fourth_powers(source, moments) if options.needs_fourth_powers else None
        return fit_gaussians(moments, chosen, powers)

    gaussians = _choose_matmul_dtype(fit_with, first_rows, options.matmul_dtype)
    worst_condition = WORST_CONDITION[gaussians.options.matmul_dtype]
    ill_conditioned = gaussians.within.condition > worst_condition
    if ill_conditioned and options.takes_ridge(few=True) and not gaussians.within.ridge:
        return _fit_with_ridge(source, gaussians.moments, gaussians.options)
    return gaussians


def _choose_matmul_dtype(
    fit_with: Callable[[str], Gaussians], first_rows: Tensor, matmul_dtype: str
) -> Gaussians:
    """Fits with a dtype, or where that is `auto` with the cheapest one that is accurate."""
    if matmul_dtype != "auto":
        return fit_with(matmul_dtype)
    if _needs_float64(first_rows):
        return fit_with("float64")
    gaussians = fit_with("float32")
    # A ridge is far above the rounding errors of float32.
    if gaussians.within.ridge or gaussians.within.condition <= FLOAT32_CONDITION:
        return gaussians
    return fit_with("float64")


def _fit_with_ridge(source: BatchSource[Batch], moments: Moments, options: FitOptions) -> Gaussians:
    """Fits Gaussians to unit vectors around the mean, with the ridge of the likeliest labels."""
    centre = moments.pilot + moments.class_sums.sum(dim=0) / moments.num_samples
    centre_there = send(centre, source.device)
    unit_source = TransformedBatches(
        source, lambda block, _: scale_to_unit_length(block, centre_there)
    )
    unit_moments = accumulate_moments(
        unit_source,
        torch.zeros_like(centre),
        moments.num_classes,
        matmul_dtype=MATMUL_DTYPES[options.matmul_dtype],
    )
    require_spread(unit_moments)
    ridge = choose_ridge(_sample(unit_source, unit_moments, options.runs), unit_moments)
    gaussians = fit_gaussians(unit_moments, options, ridge=ridge)
    return replace(gaussians, moments=moments, centre=centre)


def _needs_float64(first_rows: Tensor) -> bool:
    """Whether sampled rows, shape (rows, dim), show that float32 products are too coarse."""
    if first_rows.dtype == torch.float64 or len(first_rows) < 2 * first_rows.shape[1]:
        return True
    rows = first_rows[: ROWS_PER_DIMENSION * first_rows.shape[1]]
    labels = torch.zeros(len(rows), dtype=torch.int64)
    covariance = covariances(compute_moments(rows, labels, pilot_of(rows), 1))[1]
    return condition_number(covariance) > PILOT_CONDITION


def _fourth_powers(source: BatchSource[Batch], moments: Moments) -> FourthPowers:
    """Computes the mean fourth powers in a second pass over the features."""
    device = source.device
    pilot = send(moments.pilot, device)
    mean = send(moments.class_sums.sum(dim=0) / moments.num_samples, device)
    class_means = send(moments.class_sums / moments.counts.clamp(min=1)[:, None], device)
    within, agnostic = torch.zeros(2, dtype=torch.float64, device=device)
    work = Workspace()
    for batch in source.batches():
        for features, labels in with_labels(*source.read(batch, work)):
            centred = features.double() - pilot
            own = class_means[send(labels.long(), device)]
            within += (centred - own).square().sum(dim=1).square().sum()
            agnostic += (centred - mean).square().sum(dim=1).square().sum()
    return FourthPowers(*(float(each) / moments.num_samples for each in (within, agnostic)))


def _sample(source: BatchSource[Batch], moments: Moments, runs: int) -> LabelledRows:
    """Samples from all over a dataset with all their rows, in a second pass over the features."""
    step = max(1, moments.num_samples // runs // MOST_SAMPLES)
    features, labels, seen = [], [], 0
    work = Workspace()
    for batch in source.batches():
        for rows, row_labels in with_labels(*source.read(batch, work)):
            # A block may end between the rows of a sample.
            numbers = torch.arange(seen, seen + len(rows)) // runs
            kept = (numbers % step == 0).nonzero().flatten()
            # Copies, because the next block is read into the same memory.
            features.append(rows[send(kept, rows.device)].double().cpu())
            labels.append(row_labels[kept])
            seen += len(rows)
    return LabelledRows(torch.cat(features), torch.cat(labels).long()[::runs], runs)
