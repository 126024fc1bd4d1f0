"""Log-densities of the classes equal those of a fit that never saw the sample."""

import pytest
import torch
from torch import Tensor

from difficulty_service.gaussians import label_rule as class_densities
from difficulty_service.gaussians.label_noise import log_class_prior
from difficulty_service.gaussians.label_rule import ClassDensities, fit_densities
from difficulty_service.gaussians.moments import Moments, compute_moments
from difficulty_service.gaussians.products import Workspace

SAMPLES, CLASSES, DIM, RIDGE = 40, 4, 5, 0.3


def labelled_rows(runs: int) -> tuple[Tensor, Tensor]:
    """Rows of overlapping classes of unequal size, a few per sample, and each sample's label."""
    generator = torch.Generator().manual_seed(runs)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    centres = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    rows = torch.randn(SAMPLES * runs, DIM, generator=generator, dtype=torch.float64)
    return rows + 2 + centres[labels].repeat_interleave(runs, dim=0), labels


def moments_of(rows: Tensor, labels: Tensor) -> Moments:
    pilot = torch.full((DIM,), 1.5, dtype=torch.float64)
    return compute_moments(rows, labels, pilot, CLASSES + 1, matmul_dtype=torch.float64)


def fitted(rows: Tensor, labels: Tensor, runs: int = 1) -> ClassDensities:
    moments = moments_of(rows, labels.repeat_interleave(runs))
    return fit_densities(moments, RIDGE, runs, torch.float64)


def log_densities(densities: ClassDensities, rows: Tensor, labels: Tensor) -> Tensor:
    """Of all samples, a few of which are computed at a time."""
    places = densities.places(labels)
    parts = [each.clone() for _, each in densities.log_densities(rows, places, Workspace())]
    assert len(parts) > 1
    return torch.cat(parts)


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_densities, "DISTANCES_IN_CACHE", 7 * CLASSES)


def naive_distances(rows: Tensor, labels: Tensor, runs: int, sample: int) -> Tensor:
    """Mean squared distances of one sample to the means of a fit to all others."""
    row_labels = labels.repeat_interleave(runs)
    own = torch.arange(len(rows)) // runs == sample
    others, other_labels = rows[~own], row_labels[~own]
    means = torch.stack([others[other_labels == label].mean(dim=0) for label in labels.unique()])
    offsets = others - means[torch.searchsorted(labels.unique(), other_labels)]
    # The ridge is that of the whole dataset and keeps its proportion to the rest.
    variance = (rows - rows.mean(dim=0)).square().mean()
    ridge = RIDGE * variance * len(rows) * torch.eye(DIM, dtype=torch.float64)
    precision = torch.linalg.inv((offsets.T @ offsets + ridge) / len(others))
    to_means = rows[own][:, None] - means
    return torch.einsum("rci,ij,rcj->rc", to_means, precision, to_means).mean(dim=0)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_sample_has_the_densities_of_a_fit_without_it(runs: int) -> None:
    rows, labels = labelled_rows(runs)
    densities = fitted(rows, labels, runs)

    found = log_densities(densities, rows, labels)

    for sample in range(SAMPLES):
        expected = naive_distances(rows, labels, runs, sample) / -2
        torch.testing.assert_close(found[sample], expected)


@pytest.mark.parametrize("runs", [1, 3])
def test_the_prior_follows_from_the_number_of_samples_and_not_of_rows(runs: int) -> None:
    rows, labels = labelled_rows(runs)

    expected = log_class_prior(labels.bincount())

    torch.testing.assert_close(fitted(rows, labels, runs).log_prior, expected)


def test_a_class_without_samples_has_no_place() -> None:
    rows, labels = labelled_rows(1)
    labels[labels == 1] = 4
    densities = fitted(rows, labels)

    assert densities.classes.tolist() == [0, 2, 3, 4]
    assert densities.places(torch.tensor([4, 2])).tolist() == [3, 1]
    assert log_densities(densities, rows, labels).shape == (40, 4)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_sample_alone_in_its_class_has_no_density_of_that_class(runs: int) -> None:
    rows, labels = labelled_rows(runs)
    labels[0] = CLASSES
    densities = fitted(rows, labels, runs)

    found = log_densities(densities, rows, labels)

    assert found[0].isnan().tolist() == [False] * CLASSES + [True]
    assert not found[1:].isnan().any()


def test_float32_products_agree_with_float64_ones() -> None:
    rows, labels = labelled_rows(1)
    coarse = fit_densities(moments_of(rows, labels), RIDGE, 1, torch.float32)
    fine = fitted(rows, labels)

    found = [log_densities(each, rows, labels).double() for each in (coarse, fine)]

    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def naive_fit(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class means, and the inverse of the covariance within classes with its ridge."""
    means = torch.stack([rows[labels == label].mean(dim=0) for label in range(CLASSES)])
    offsets = rows - means[labels]
    variance = (rows - rows.mean(dim=0)).square().mean()
    ridge = RIDGE * variance * torch.eye(DIM, dtype=torch.float64)
    return means, torch.linalg.inv(offsets.T @ offsets / SAMPLES + ridge)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_own_distances_may_be_their_mean_in_what_leaving_a_sample_out_changes(
    dtype: torch.dtype,
) -> None:
    rows, labels = labelled_rows(1)
    exact = fit_densities(moments_of(rows, labels), RIDGE, 1, dtype)

    found = log_densities(exact.with_mean_distance(), rows.to(dtype), labels).double()

    means, precision = naive_fit(rows, labels)
    offsets = rows - means[labels]
    own = float((offsets @ precision * offsets).sum(dim=1).mean())
    assert exact.own_distance == pytest.approx(own)
    for sample, label in enumerate(labels.tolist()):
        size = int((labels == label).sum())
        growth, share = size / (size - 1), size / (size - 1) / SAMPLES
        expected = []
        for other in range(CLASSES):
            between = means[label] - means[other]
            inner = own + float(offsets[sample] @ precision @ between)
            distance = own + 2 * (inner - own) + float(between @ precision @ between)
            distance += share * inner**2 / (1 - share * own)
            if other == label:
                distance = growth**2 * own / (1 - share * own)
            expected.append(distance * (SAMPLES - 1) / SAMPLES / -2)
        torch.testing.assert_close(
            found[sample] - found[sample].max(),
            torch.tensor(expected, dtype=torch.float64) - max(expected),
            rtol=1e-4 if dtype is torch.float32 else 1e-9,
            atol=1e-4 if dtype is torch.float32 else 1e-9,
        )


def test_samples_nearer_to_others_by_more_than_the_mean_distance_tell_these_apart() -> None:
    rows, labels = labelled_rows(1)
    means, precision = naive_fit(rows, labels)
    far = 10 * (means - means[0])[1:] + means[0]
    gaps = far[:, None] - means
    distances = torch.einsum("rci,ij,rcj->rc", gaps, precision, gaps)
    densities = fitted(rows.repeat(1000, 1), labels.repeat(1000)).with_mean_distance()
    # Several classes would have a distance below zero, so that their order could be lost.
    relative = distances - distances[:, :1] + densities.own_distance
    assert (relative.sort(dim=1).values[:, 1] < 0).any()

    found = densities.log_densities(far, torch.zeros(3, dtype=torch.int64), Workspace())

    joined = torch.cat([each for _, each in found])
    torch.testing.assert_close(
        joined[:, 1:] - joined[:, 1:2],
        (distances[:, 1:] - distances[:, 1:2]) / -2,
        rtol=0.02,
        atol=0.02,
    )
