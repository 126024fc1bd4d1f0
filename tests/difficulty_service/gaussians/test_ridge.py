"""The ridge is the one under which labels of samples left out are most probable."""

from typing import Any

import pytest
import torch
from torch import Tensor

from difficulty_service.gaussians import ridge
from difficulty_service.gaussians.label_noise import log_class_prior
from difficulty_service.gaussians.moments import compute_moments, pilot_of
from difficulty_service.gaussians.ridge import (
    FARTHEST_RIDGES,
    RIDGES,
    LabelledRows,
    RidgeChoice,
    choose_ridge,
    label_likelihood,
    likeliest_ridge,
)
from difficulty_service.gaussians.roots import Slopes, falling_root


def overlapping_classes(
    each: int, classes: int = 5, dim: int = 40, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Classes whose means differ by about a standard deviation in every direction."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centres = 0.4 * torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    scales = torch.logspace(0, -1.5, dim, dtype=torch.float64)
    noise = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return (centres[labels] + noise) * scales, labels


def extended(features: Tensor, labels: Tensor, runs: int = 1) -> RidgeChoice:
    """The ridge that may lie beyond RIDGES."""
    rows = labels.repeat_interleave(runs)
    moments = compute_moments(
        features, rows, pilot_of(features), int(labels.max()) + 1, matmul_dtype=torch.float64
    )
    return likeliest_ridge(LabelledRows(features, labels, runs), moments)


def chosen(features: Tensor, labels: Tensor, runs: int = 1) -> float:
    """The ridge for features that are all in the sample."""
    rows = labels.repeat_interleave(runs)
    moments = compute_moments(
        features, rows, pilot_of(features), int(labels.max()) + 1, matmul_dtype=torch.float64
    )
    return choose_ridge(LabelledRows(features, labels, runs), moments)


def naive_likelihood(features: Tensor, labels: Tensor, ridge: float) -> float:
    """Mean log-probability of labels by Gaussians fitted without each sample, at the best scale."""
    classes = int(labels.max()) + 1
    variance = (features - features.mean(dim=0)).square().mean()
    added = ridge * variance * len(labels) * torch.eye(features.shape[1], dtype=torch.float64)
    distances = []
    for sample in range(len(labels)):
        kept = torch.arange(len(labels)) != sample
        means = torch.stack(
            [features[kept & (labels == label)].mean(dim=0) for label in range(classes)]
        )
        offsets = (features - means[labels])[kept]
        precision = torch.linalg.inv((offsets.T @ offsets + added) / int(kept.sum()))
        gaps = features[sample] - means
        distances.append(torch.einsum("ci,ij,cj->c", gaps, precision, gaps))
    prior = log_class_prior(labels.bincount())
    scales = torch.logspace(-3, 1, 200, dtype=torch.float64)[:, None, None]
    log_probabilities = (prior - scales * torch.stack(distances) / 2).log_softmax(dim=2)
    own = log_probabilities.gather(2, labels[None, :, None].expand(200, -1, 1))
    return float(own.mean(dim=1).max())


def test_the_ridge_is_the_best_of_all_by_refitting_without_each_sample() -> None:
    features, labels = overlapping_classes(each=8, dim=10)

    likelihoods = {ridge: naive_likelihood(features, labels, ridge) for ridge in RIDGES}

    assert chosen(features, labels) == max(RIDGES, key=lambda ridge: likelihoods[ridge])


def test_more_samples_need_less_of_a_ridge() -> None:
    few, many = (chosen(*overlapping_classes(each)) for each in (8, 800))

    assert few > 10 * many


def test_fewer_samples_than_dimensions_get_a_ridge_of_some_size() -> None:
    assert chosen(*overlapping_classes(each=3, dim=200)) >= 0.1


def test_the_unit_of_the_features_does_not_matter() -> None:
    features, labels = overlapping_classes(each=10)

    assert chosen(1000 * features, labels) == chosen(features, labels)


def test_the_runs_of_a_sample_are_left_out_together() -> None:
    features, labels = overlapping_classes(each=6, dim=60)
    runs = 4
    generator = torch.Generator().manual_seed(1)
    # Copies that hardly differ: alone, each would be explained by the others.
    jitter = 1e-3 * torch.randn(len(features) * runs, 60, generator=generator, dtype=torch.float64)
    repeated = features.repeat_interleave(runs, dim=0) + jitter

    assert chosen(repeated, labels, runs) == pytest.approx(chosen(features, labels), rel=4)
    alone = extended(repeated, labels.repeat_interleave(runs))
    assert alone.likelihood == pytest.approx(0, abs=1e-6)
    assert extended(repeated, labels, runs).likelihood < -0.1


def test_classes_of_one_sample_and_empty_classes_are_passed_over() -> None:
    features, labels = overlapping_classes(each=10)
    expected = chosen(features, labels)

    with_singleton = torch.cat([features, features[:1] + 1]), torch.cat([labels, labels[-1:] + 2])

    assert chosen(*with_singleton) == expected


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]], ids=["one class", "one sample each"])
def test_where_nothing_can_be_compared_the_ridge_is_the_largest(labels: list[int]) -> None:
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    assert chosen(features, torch.tensor(labels)) == RIDGES[-1]


def test_the_likelihood_of_labels_does_not_depend_on_the_scale_of_distances() -> None:
    features, labels = overlapping_classes(each=20)
    distances = torch.cdist(features, features[::20]).square()
    log_prior = log_class_prior(labels.bincount())

    once, hundredfold = (
        label_likelihood(factor * distances, labels, log_prior)[1] for factor in (1, 100)
    )

    assert once == pytest.approx(hundredfold, abs=1e-3)
    assert once <= 0


@pytest.mark.parametrize("near", [0.01, 1.0, 50.0])
def test_labels_that_any_scale_explains_are_not_searched_for_the_best_one(
    near: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[float] = []

    def counting(slopes: Slopes, *search: Any) -> float:  # noqa: ANN401
        def counted(place: float) -> tuple[float, float]:
            looked_at.append(place)
            return slopes(place)

        return falling_root(counted, *search)

    monkeypatch.setattr(ridge, "falling_root", counting)
    labels = torch.arange(50).repeat_interleave(4)
    distances = 100 + 400 * (labels[:, None] != torch.arange(50)).double()

    scale, likelihood = label_likelihood(
        distances, labels, log_class_prior(labels.bincount()), near
    )

    assert len(looked_at) < 15
    assert likelihood == pytest.approx(0, abs=1e-10)
    assert scale > 0.99 * near


def test_a_ridge_between_the_ends_comes_with_the_scale_of_the_likelihood() -> None:
    features, labels = overlapping_classes(each=10)

    choice = extended(features, labels)

    assert choice.ridge == chosen(features, labels)
    assert choice.likelihood == pytest.approx(
        naive_likelihood(features, labels, choice.ridge), abs=2e-3
    )
    assert 0 < choice.scale < 2


def test_the_ridge_goes_on_below_the_smallest_while_labels_become_more_probable() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2).repeat_interleave(300)
    features = torch.randn(600, 2, generator=generator, dtype=torch.float64)
    # The classes differ only where there is hardly any variance.
    features[:, 1] = 1e-4 * (features[:, 1] + 3 * labels)

    choice = extended(features, labels)

    assert chosen(features, labels) == RIDGES[0]
    assert FARTHEST_RIDGES[0] * 0.99 < choice.ridge < RIDGES[0]


def test_the_extended_choice_has_nothing_to_compare_in_one_class() -> None:
    features, _ = overlapping_classes(each=10)

    choice = extended(features, torch.zeros(len(features), dtype=torch.int64))

    assert choice.ridge == RIDGES[-1]
    assert choice.likelihood != choice.likelihood


def test_of_ridges_that_explain_all_labels_the_largest_is_chosen() -> None:
    features, labels = overlapping_classes(each=10)
    apart = torch.nn.functional.one_hot(labels, features.shape[1]) * 1e3
    separable = features + apart

    reverse = torch.arange(len(labels) - 1, -1, -1)

    assert chosen(separable, labels) == RIDGES[-1]
    assert chosen(separable[reverse], labels[reverse]) == RIDGES[-1]
