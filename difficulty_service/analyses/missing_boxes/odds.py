"""How much a window beside all boxes looks like an object, by the densities of `suspicion`.

The windows are one more class, the background, beside those of the boxes: Gaussians with a common
covariance in features that are extended by similarities to landmarks. Each window is left out of
the mean of the background, so that a missing object is not background because it was taken for it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.label_rule import samples_at_once
from difficulty_service.gaussians.products import row_ranges
from difficulty_service.scorers.suspicion import PosteriorOptions, fit_posteriors


@dataclass(frozen=True)
class ObjectOdds:
    """What each window looks like.

    Attributes:
        log_odds: Logarithm of the odds of an object of any class against the background; larger is
            more like an object. They rank windows: with windows on missing objects in the
            background, they are too small as odds. Shape (windows,).
        labels: The class that fits best. Shape (windows,).
    """

    log_odds: Tensor
    labels: Tensor


def object_odds(boxes: Tensor, labels: Tensor, windows: Tensor, seed: int = 0) -> ObjectOdds:
    """Compares windows with the classes of boxes and with each other.

    Args:
        boxes: Features of the objects. Shape (boxes, dim).
        labels: Their classes. Shape (boxes,).
        windows: Features of windows beside all boxes. Shape (windows, dim).
        seed: Seed of the landmarks.
    """
    background = int(labels.max()) + 1
    rows = torch.cat([boxes, windows.to(boxes.dtype)])
    given = torch.cat([labels.long(), torch.full((len(windows),), background)])
    options = PosteriorOptions(("suspicion",), background + 1, matmul_dtype=rows.dtype, seed=seed)
    fitted = fit_posteriors(TensorBatches(rows, given), options)
    rule = fitted.suspicion
    assert rule is not None  # noqa: S101 - it was asked for
    log_odds, classes = [], []
    for block in row_ranges(len(windows), samples_at_once(rule)):
        here = slice(len(boxes) + block.start, len(boxes) + block.stop)
        densities = fitted.log_densities(rows[here], given[here])
        joint = rule.log_joint(densities, rule.choice.scale).double()
        # The background is the last of the fitted classes.
        log_odds.append(joint[:, :-1].logsumexp(dim=1) - joint[:, -1])
        classes.append(rule.densities.classes[joint[:, :-1].argmax(dim=1)])
    return ObjectOdds(torch.cat(log_odds), torch.cat(classes))
