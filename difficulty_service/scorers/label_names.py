"""How well the name of the label fits an image, beside the names of the other classes.

A CLIP places images and words in one space, so a label can be doubted without any statistics of the
labels: however many are wrong, the words stay the same. It is the first of the three terms of LEMoN
(Zhang et al. 2024, arXiv 2407.18941), as a difference between classes; the other two look for
neighbours among images and texts.
"""

import torch
from torch import Tensor

from difficulty_service.gaussians.products import row_ranges
from difficulty_service.scorers import ScorerInput

COSINES_AT_ONCE = 1 << 22
"""Approximate number of cosines that are held at a time."""


def score_samples(samples: ScorerInput) -> Tensor:
    """The column `name_margin`; see `name_margins`."""
    if samples.cosines is None:
        raise ValueError("names of classes are needed")
    rows = max(1, COSINES_AT_ONCE // samples.num_classes)
    margins = [
        name_margins(samples.cosines(samples.features[block]), samples.labels[block])
        for block in row_ranges(len(samples.labels), rows)
    ]
    return torch.cat(margins)


def name_margins(cosines: Tensor, labels: Tensor) -> Tensor:
    """Largest cosine with the name of another class, minus that with the name of the label.

    Larger is harder: above 0, the name of another class fits better. From -2 to 2; NaN where there
    is no other class.

    Args:
        cosines: Shape (samples, classes).
        labels: Class indices. Shape (samples,).

    Returns:
        Shape (samples,), in the dtype of the cosines.
    """
    place = labels[:, None]
    own = cosines.gather(1, place)[:, 0]
    others = cosines.scatter(1, place, -torch.inf).amax(dim=1)
    margins = others - own
    return margins.masked_fill(margins.isinf(), torch.nan)
