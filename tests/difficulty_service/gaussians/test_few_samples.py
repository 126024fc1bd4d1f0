"""With few samples or an ill-conditioned covariance, `auto` chooses a ridge for unit vectors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.features.description import FeatureDescription
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.gaussian import Gaussians, fit_gaussians
from difficulty_service.gaussians.leave_one_out import compare_left_out, leave_one_out_rmd
from difficulty_service.gaussians.moments import compute_moments
from difficulty_service.gaussians.ridge import ENOUGH_SAMPLES, RIDGES
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scoring.fitted_gaussians import load_gaussians, save_gaussians

DIM, CLASSES = 8, 3


def make_features(samples: int, runs: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(samples) % CLASSES
    centres = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples * runs, DIM, generator=generator, dtype=torch.float64)
    return centres[labels].repeat_interleave(runs, dim=0) + noise, labels.repeat_interleave(runs)


def naive_distances(features: Tensor, labels: Tensor, ridge: float) -> dict[str, np.ndarray]:
    """Distances of unit vectors around the mean, by inverse covariances with a ridge."""
    rows, classes = features.numpy(), labels.numpy()
    rows = rows - rows.mean(axis=0)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    means = np.stack([rows[classes == label].mean(axis=0) for label in range(CLASSES)])
    added = ridge * rows.var(axis=0).mean() * np.eye(DIM)
    within = (rows - means[classes]).T @ (rows - means[classes]) / len(rows) + added
    agnostic = np.cov(rows.T, ddof=0) + added

    def squared(offsets: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        return np.einsum("ni,ij,nj->n", offsets, np.linalg.inv(covariance), offsets)

    return {
        "md": squared(rows - means[classes], within),
        "md_agnostic": squared(rows - rows.mean(axis=0), agnostic),
    }


@pytest.mark.parametrize(
    ("samples", "few"), [(ENOUGH_SAMPLES * DIM - 1, True), (ENOUGH_SAMPLES * DIM, False)]
)
def test_a_ridge_is_chosen_below_fifty_samples_per_dimension(
    samples: int,
    few: bool,  # noqa: FBT001
) -> None:
    gaussians = fit(*make_features(samples), CLASSES)

    assert (gaussians.within.ridge > 0) is few
    assert (gaussians.centre is not None) is few
    assert gaussians.reliable


def test_augmentation_runs_do_not_count_as_samples() -> None:
    features, labels = make_features(ENOUGH_SAMPLES * DIM // 4, runs=4)

    assert fit(features, labels, CLASSES, FitOptions(runs=4)).within.ridge > 0
    assert fit(features, labels, CLASSES).within.ridge == 0


def test_a_ridge_is_chosen_for_an_ill_conditioned_covariance_of_many_samples() -> None:
    features, labels = make_features(ENOUGH_SAMPLES * DIM * 3)
    doubled = torch.cat([features, features], dim=1)

    gaussians = fit(doubled, labels, CLASSES)

    assert gaussians.within.ridge in RIDGES
    assert gaussians.within.rank == 2 * DIM
    assert gaussians.warnings == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_are_those_of_unit_vectors_with_the_ridge(dtype: torch.dtype) -> None:
    features, labels = make_features(60)
    gaussians = fit(features.to(dtype), labels, CLASSES)

    scores = relative_mahalanobis(gaussians).distances(features.to(dtype), labels)

    expected = naive_distances(features, labels, gaussians.within.ridge)
    rtol = 1e-9 if dtype == torch.float64 else 1e-4
    np.testing.assert_allclose(scores.md, expected["md"], rtol=rtol)
    np.testing.assert_allclose(scores.md_agnostic, expected["md_agnostic"], rtol=rtol)
    alone = relative_mahalanobis(gaussians).rmd(features.to(dtype), labels)
    np.testing.assert_allclose(alone, expected["md"] - expected["md_agnostic"], atol=rtol)


def refit_without(sample: int, gaussians: Gaussians, features: Tensor, labels: Tensor) -> Gaussians:
    """A fit without one sample, with the same centre and with a ridge that grows as the rest."""
    kept = torch.arange(len(labels)) // gaussians.options.runs != sample
    rows = gaussians.prepare(features)
    pilot = torch.zeros(DIM, dtype=torch.float64)
    moments = compute_moments(rows[kept], labels[kept], pilot, CLASSES, matmul_dtype=torch.float64)
    variances = [float(each.var(dim=0, correction=0).mean()) for each in (rows, rows[kept])]
    share = variances[0] / variances[1] * len(rows) / len(rows[kept])
    refitted = fit_gaussians(moments, gaussians.options, ridge=gaussians.within.ridge * share)
    return replace(refitted, centre=gaussians.centre)


@pytest.mark.parametrize("runs", [1, 3])
def test_leaving_out_is_a_fit_without_the_sample_around_the_same_centre(runs: int) -> None:
    features, labels = make_features(60, runs)
    gaussians = fit(features, labels, CLASSES, FitOptions(runs=runs))
    scores = relative_mahalanobis(gaussians).distances(features, labels)

    rmd = leave_one_out_rmd(gaussians, features, labels, scores.md, scores.md_agnostic)
    _, margins = compare_left_out(gaussians, features, labels, scores.md_agnostic)

    for sample in (0, 31):
        rows = slice(sample * runs, (sample + 1) * runs)
        refitted = relative_mahalanobis(refit_without(sample, gaussians, features, labels))
        expected = refitted.distances(features[rows], labels[rows])
        torch.testing.assert_close(margins[sample], expected.label_margin.mean())
        torch.testing.assert_close(rmd[sample], expected.rmd.mean())


def test_the_centre_is_kept_on_disk(tmp_path: Path) -> None:
    features, labels = make_features(60)
    gaussians = fit(features, labels, CLASSES)
    described = FeatureDescription(class_names=("a",), num_shards=1, augment_runs=0)

    save_gaussians(
        tmp_path / "g",
        gaussians,
        described,
    )

    loaded, _ = load_gaussians(tmp_path / "g")
    scores = (relative_mahalanobis(each).rmd(features, labels) for each in (gaussians, loaded))
    assert torch.equal(*scores)
