"""Labels are as probable as Gaussians say that were fitted without the sample in question."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from difficulty_service.analyses.backbones.label_likelihood import (
    log_probabilities,
    log_probabilities_without_features,
    paired_difference,
)
from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.feature_map import scale_to_unit_length
from difficulty_service.gaussians.label_noise import log_class_prior
from difficulty_service.gaussians.moments import compute_moments
from difficulty_service.gaussians.ridge import LabelledRows, RidgeChoice, likeliest_ridge

CLASSES, DIM = 3, 6


def samples(
    sizes: tuple[int, ...] = (12, 7, 5), runs: int = 1, dim: int = DIM
) -> tuple[Tensor, Tensor]:
    """Overlapping classes, away from the origin, with several rows of each sample."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    centres = 1.2 * torch.randn(len(sizes), dim, generator=generator, dtype=torch.float64) + 2
    each = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    rows = (centres[labels] + each).repeat_interleave(runs, dim=0)
    jitter = 0.3 * torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    return rows + (jitter if runs > 1 else 0), labels


def choice_for(units: Tensor, labels: Tensor, runs: int) -> RidgeChoice:
    """Ridge and scale, and the mean log-probability under them."""
    origin = torch.zeros(units.shape[1], dtype=torch.float64)
    rows = labels.repeat_interleave(runs)
    moments = compute_moments(units, rows, origin, CLASSES, matmul_dtype=torch.float64)
    return likeliest_ridge(LabelledRows(units, labels, runs), moments)


def refitted(units: Tensor, labels: Tensor, runs: int, choice: RidgeChoice) -> Tensor:
    """Log-probabilities of the labels by means and covariances of all other samples."""
    rows = labels.repeat_interleave(runs)
    identity = torch.eye(units.shape[1], dtype=torch.float64)
    added = choice.ridge * (units - units.mean(dim=0)).square().mean() * len(rows) * identity
    found = []
    for sample in range(len(labels)):
        kept = torch.arange(len(rows)) // runs != sample
        means = torch.stack([units[kept & (rows == label)].mean(dim=0) for label in range(CLASSES)])
        offsets = (units - means[rows])[kept]
        precision = torch.linalg.inv((offsets.T @ offsets + added) / kept.sum())
        gaps = units[~kept][:, None] - means
        distances = torch.einsum("rci,ij,rcj->rc", gaps, precision, gaps).mean(dim=0)
        logits = log_class_prior(labels.bincount()) - choice.scale * distances / 2
        found.append(logits.log_softmax(dim=0)[labels[sample]])
    return torch.stack(found)


@pytest.mark.parametrize("runs", [1, 3])
def test_the_closed_form_is_a_refit_without_each_sample(runs: int) -> None:
    features, labels = samples(runs=runs)
    units = scale_to_unit_length(features, features.mean(dim=0))

    found = log_probabilities(features, labels, runs)

    expected = refitted(units, labels, runs, choice_for(units, labels, runs))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)
    assert found.max() < 0


def test_the_mean_is_what_ridge_and_scale_were_chosen_by() -> None:
    features, labels = samples()
    units = scale_to_unit_length(features, features.mean(dim=0))

    found = log_probabilities(features, labels)

    assert float(found.mean()) == pytest.approx(choice_for(units, labels, 1).likelihood)


def test_the_unit_and_the_origin_of_features_do_not_matter() -> None:
    features, labels = samples()

    moved = log_probabilities(1000 * features - 5, labels)

    torch.testing.assert_close(moved, log_probabilities(features, labels))


def test_features_that_only_remember_their_samples_say_no_more_than_the_sizes_of_classes() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(90, 400, generator=generator)
    labels = torch.arange(CLASSES).repeat(30)

    found = log_probabilities(features, labels)

    assert float(found.mean()) == pytest.approx(math.log(1 / CLASSES), abs=0.03)


def test_a_sample_alone_in_its_class_has_no_probability() -> None:
    features, labels = samples((12, 7, 1))

    found = log_probabilities(features, labels)

    assert found.isnan().tolist() == [False] * 19 + [True]


@pytest.mark.parametrize("sizes", [(8,), (8, 1, 1)], ids=["one class", "others of one sample"])
def test_labels_without_another_class_to_compare_with_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(StatisticsError, match="two classes with two samples each"):
        log_probabilities(*samples(sizes))


def test_without_features_a_label_is_as_probable_as_its_class_is_large() -> None:
    labels = torch.arange(2).repeat_interleave(torch.tensor([300, 100]))

    found = log_probabilities_without_features(labels)

    assert float(found[0]) == pytest.approx(math.log(0.75), abs=0.01)
    assert float(found[-1]) == pytest.approx(math.log(0.25), abs=0.02)


def test_the_paired_interval_is_that_of_the_differences() -> None:
    generator = torch.Generator().manual_seed(2)
    common = torch.randn(400, generator=generator, dtype=torch.float64)
    better = common + 0.1 + 0.05 * torch.randn(400, generator=generator, dtype=torch.float64)

    found = paired_difference(better, common)

    normal = stats.norm.interval(0.95, found.mean, stats.sem(better - common))
    assert found.mean == pytest.approx(0.1, abs=0.01)
    assert found.half_width == pytest.approx((normal[1] - normal[0]) / 2)
    assert found.half_width < 0.01 < stats.sem(better)


def test_values_do_not_differ_from_themselves() -> None:
    values = torch.tensor([-1.0, -2.0], dtype=torch.float64)

    found = paired_difference(values, values)

    assert (found.mean, found.half_width) == (0, 0)
