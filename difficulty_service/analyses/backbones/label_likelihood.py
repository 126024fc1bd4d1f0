"""How probable each given label is by features alone: what tells one backbone from another.

The classes are Gaussians with one covariance, in features scaled to unit length around their mean.
Each sample is left out of the fit, in closed form (`class_distances`), so that features that merely
remember their samples gain nothing. Ridge and scale are those at which the labels are likeliest
(`ridge`): three numbers for thousands of labels, whose choice hardly flatters any of them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.feature_map import require_spread, scale_to_unit_length
from difficulty_service.gaussians.label_noise import log_class_prior
from difficulty_service.gaussians.label_rule import fit_rule, samples_at_once
from difficulty_service.gaussians.moments import compute_moments
from difficulty_service.gaussians.products import one_thread_per_product, row_ranges
from difficulty_service.gaussians.ridge import LabelledRows

MIN_CLASSES = 2
"""Number of classes below which there is nothing to compare."""

WIDTH_95 = 1.959963984540054
"""Standard errors from the middle of a 95 % interval to its end."""


@one_thread_per_product()
def log_probabilities(features: Tensor, labels: Tensor, runs: int = 1) -> Tensor:
    """Logarithm of the probability of each label, its sample left out of the fit.

    Args:
        features: The rows of a sample are adjacent. Shape (samples * runs, dim).
        labels: Class indices. Shape (samples,).
        runs: Rows for each sample, one for each augmentation run.

    Returns:
        In nats, zero or less, float64; NaN for a sample that is alone in its class. Shape
        (samples,).

    Raises:
        StatisticsError: A feature is not finite, all features are the same, or there are not two
            classes of two samples.
    """
    num_classes = int(labels.max()) + 1 if len(labels) else 0
    if int((labels.bincount() > 1).sum()) < MIN_CLASSES:
        raise StatisticsError("a comparison needs two classes with two samples each")
    centre = features.mean(dim=0, dtype=torch.float64)
    units = scale_to_unit_length(features, centre)
    rows = labels.repeat_interleave(runs)
    moments = compute_moments(
        units, rows, torch.zeros_like(centre), num_classes, matmul_dtype=torch.float64
    )
    require_spread(moments)
    rule = fit_rule(LabelledRows(units, labels, runs), moments, torch.float64)
    own = rule.densities.places(labels)
    found = torch.full((len(labels),), torch.nan, dtype=torch.float64)
    for block in row_ranges(len(labels), samples_at_once(rule)):
        mapped = units[block.start * runs : block.stop * runs]
        for part, densities in rule.log_densities(mapped, own[block]):
            joint = rule.log_joint(densities, rule.choice.scale).log_softmax(dim=1)
            place = own[block][part, None]
            found[block][part] = joint.gather(1, place)[:, 0].double()
    return found


def log_probabilities_without_features(labels: Tensor) -> Tensor:
    """As `log_probabilities`, by the sizes of the classes alone; -inf where others are not."""
    return log_class_prior(labels.bincount())[labels]


@dataclass(frozen=True)
class PairedMean:
    """Mean of differences between two values of the same samples.

    Attributes:
        half_width: Half the width of its 95 % interval, by the spread of the differences.
    """

    mean: float
    half_width: float


def paired_difference(values: Tensor, others: Tensor) -> PairedMean:
    """How much larger values are than others of the same samples, in the mean. Shapes (samples,).

    As precise as the differences are alike: what makes a label improbable by both sides cancels.
    """
    differences = values - others
    spread = float(differences.std()) if len(differences) > 1 else 0.0
    return PairedMean(
        float(differences.mean()), WIDTH_95 * spread / math.sqrt(max(1, len(differences)))
    )
