"""Leaving a sample out in closed form equals a fit without it."""

import pytest
import torch
from torch import Tensor

from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.leave_one_out import (
    compare_left_out,
    leave_one_out_rmd,
    leave_one_row_out,
    leave_sample_rows_out,
)
from difficulty_service.scorers.mahalanobis import relative_mahalanobis

NUM_CLASSES = 3


def make_samples(runs: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    centres = 2 * torch.randn(NUM_CLASSES, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(NUM_CLASSES, (90,), generator=generator).repeat_interleave(runs)
    samples = torch.randn(90, 7, generator=generator, dtype=torch.float64)
    views = 0.3 * torch.randn(90 * runs, 7, generator=generator, dtype=torch.float64)
    return centres[labels] + samples.repeat_interleave(runs, dim=0) + views, labels


def rmd_in_closed_form(features: Tensor, labels: Tensor, request: FitOptions) -> Tensor:
    gaussians = fit(features, labels, NUM_CLASSES, request)
    distances = relative_mahalanobis(gaussians).distances(features, labels)
    return leave_one_out_rmd(gaussians, features, labels, distances.md, distances.md_agnostic)


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_closed_form_equals_refitting_without_the_sample(runs: int) -> None:
    features, labels = make_samples(runs)
    request = FitOptions("none", runs=runs)

    closed_form = rmd_in_closed_form(features, labels, request)

    for sample in (0, 13, 89):
        others = torch.arange(len(labels)) // runs != sample
        refitted = fit(features[others], labels[others], NUM_CLASSES, request)
        scored = relative_mahalanobis(refitted).rmd(features[~others], labels[~others])
        torch.testing.assert_close(closed_form[sample], scored.mean(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("runs", [1, 3])
def test_the_nearest_label_and_the_margin_are_those_of_a_fit_without_the_sample(runs: int) -> None:
    features, labels = make_samples(runs)
    options = FitOptions("none", runs=runs)
    gaussians = fit(features, labels, NUM_CLASSES, options)
    md_agnostic = relative_mahalanobis(gaussians).distances(features, labels).md_agnostic

    nearest_label, margin = compare_left_out(gaussians, features, labels, md_agnostic)

    for sample in (0, 13, 89):
        others = torch.arange(len(labels)) // runs != sample
        refitted = fit(features[others], labels[others], NUM_CLASSES, options)
        scored = relative_mahalanobis(refitted).distances(features[~others], labels[~others])
        torch.testing.assert_close(margin[sample], scored.label_margin.mean())
        if runs == 1:
            assert nearest_label[sample] == scored.nearest_label


def test_a_sample_alone_in_its_class_is_compared_with_no_class_at_all() -> None:
    features, labels = make_samples()
    labels[0] = NUM_CLASSES
    gaussians = fit(features, labels, NUM_CLASSES + 1, FitOptions("none"))
    distances = relative_mahalanobis(gaussians).distances(features, labels)

    nearest_label, margin = compare_left_out(gaussians, features, labels, distances.md_agnostic)

    to_others = margin[0] - distances.md_agnostic[0]
    assert int(nearest_label[0]) < NUM_CLASSES
    assert torch.isfinite(margin).all()
    assert to_others < 0


@pytest.mark.parametrize("runs", [1, 3])
def test_no_sample_looks_like_a_class_of_one_sample(runs: int) -> None:
    features, labels = make_samples(runs)
    labels[:runs] = NUM_CLASSES
    features[:runs] = features[runs : 2 * runs] + 0.01  # as near to another sample as can be
    options = FitOptions("none", runs=runs)
    gaussians = fit(features, labels, NUM_CLASSES + 1, options)
    distances = relative_mahalanobis(gaussians).distances(features, labels)

    nearest_label, margin = compare_left_out(gaussians, features, labels, distances.md_agnostic)

    others = torch.arange(len(labels)) // runs != 1
    refitted = fit(features[others], labels[others], NUM_CLASSES + 1, options)
    expected = relative_mahalanobis(refitted).distances(features[~others], labels[~others])
    assert int(nearest_label.max()) < NUM_CLASSES
    assert int(distances.nearest_label.max()) < NUM_CLASSES
    torch.testing.assert_close(margin[1], expected.label_margin.mean())


def test_closed_form_of_a_shrunk_covariance_keeps_the_ridge_in_proportion() -> None:
    features, labels = make_samples()
    gaussians = fit(features, labels, NUM_CLASSES, FitOptions(shrinkage=0.2))
    distances = relative_mahalanobis(gaussians).distances(features, labels)

    closed_form = leave_one_out_rmd(
        gaussians, features, labels, distances.md, distances.md_agnostic
    )

    sample, count = 13, len(labels)
    mean_without = features[torch.arange(count) != sample].mean(dim=0)
    whitening = torch.linalg.inv(gaussians.agnostic.whitening.T @ gaussians.agnostic.whitening)
    offset = features[sample] - features.mean(dim=0)
    removed = 0.8 * count / (count - 1) / count * torch.outer(offset, offset)
    covariance = count / (count - 1) * (whitening - removed)
    difference = features[sample] - mean_without
    agnostic = difference @ torch.linalg.solve(covariance, difference)
    own = leave_one_row_out(
        distances.md, gaussians.moments.counts[labels], count, gaussians.within.intensity
    )
    torch.testing.assert_close(own[sample] - closed_form[sample], agnostic)


def test_one_row_per_sample_is_a_special_case_of_several() -> None:
    squared = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64)
    counts = torch.tensor([4, 9, 30])

    single = leave_one_row_out(squared, counts, 60, 0.1)

    several = leave_sample_rows_out(squared[:, None, None], counts, 60, 0.1)
    torch.testing.assert_close(several[:, 0], single)


def test_the_only_sample_of_a_class_has_no_leave_one_out_distance() -> None:
    alone = leave_one_row_out(torch.zeros(1), torch.tensor([1]), 10, 0.0)
    alone_with_runs = leave_sample_rows_out(torch.zeros(1, 3, 3), torch.tensor([3]), 30, 0.0)

    assert alone.isnan().all()
    assert alone_with_runs.isnan().all()


def test_a_sample_without_which_the_covariance_is_singular_has_no_distance() -> None:
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 5.0]]).double()
    labels = torch.zeros(4, dtype=torch.int64)
    gaussians = fit(features, labels, 1, FitOptions("none"))
    distances = relative_mahalanobis(gaussians).distances(features, labels)

    result = leave_one_row_out(distances.md, gaussians.moments.counts[labels], 4, 0.0)

    assert result[3].isnan()
    assert not result[:3].isnan().any()


def test_leaving_a_sample_out_makes_its_distance_larger() -> None:
    features, labels = make_samples()
    gaussians = fit(features, labels, NUM_CLASSES)
    md = relative_mahalanobis(gaussians).distances(features, labels).md

    result = leave_one_row_out(md, gaussians.moments.counts[labels], len(labels), 0.0)

    assert (result > md).all()
