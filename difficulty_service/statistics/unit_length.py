"""Features scaled to unit length around the mean of a dataset.

With few samples, unit vectors tell classes apart better than features as they are;
`docs/findings.md` has the figures.
"""

import torch
from torch import Tensor

from difficulty_service.errors import StatisticsError
from difficulty_service.statistics.factor import ALL_THE_SAME
from difficulty_service.statistics.moments import Moments
from difficulty_service.statistics.products import squared_lengths

SMALLEST_LENGTH = 1e-6
"""Distance from the centre, as a share of the centre's own length, that is only rounding noise."""

SMALLEST_SPREAD = 1e-6
"""Total variance of unit vectors below which all features are the same."""


def scale_to_unit_length(features: Tensor, centre: Tensor) -> Tensor:
    """Features minus a centre, divided by their distance from it.

    Args:
        features: Shape (samples, dim).
        centre: Shape (dim,).

    Returns:
        Unit vectors in the wider dtype of both; zero where features differ from the centre by
        rounding only. Shape (samples, dim).
    """
    offsets = features - centre
    lengths = squared_lengths(offsets).sqrt_()[:, None]
    distinct = lengths > SMALLEST_LENGTH * centre.norm()
    return offsets.mul_(torch.where(distinct, 1 / lengths, 0.0))


def require_spread(moments: Moments) -> None:
    """Raises StatisticsError where unit vectors with these moments are all the same."""
    total = float(moments.scatter.trace()) / moments.num_samples if moments.num_samples else 1.0
    if total < SMALLEST_SPREAD:
        raise StatisticsError(ALL_THE_SAME)
