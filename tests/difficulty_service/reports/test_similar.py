"""Which images resemble an image most."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn import functional as F

from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.gaussian import Gaussians
from difficulty_service.reports import similar
from difficulty_service.reports.map import MAX_DIRECTIONS, discriminants, similarity_directions
from difficulty_service.reports.similar import most_similar, write_vectors
from difficulty_service.scoring.fit_store import fit_store
from tests.factories import store_of

SHARDS, EACH, DIM = 3, 100, 8
ROWS = SHARDS * EACH


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    """Features of two classes whose other directions have very different variances."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1.0, 1.0, 5.0, 3.0, 2.0, 0.5, 0.2, 0.1])
    noise = torch.randn(ROWS, DIM, generator=generator) * scales
    return noise + 4 * F.one_hot(torch.arange(ROWS) % 2, DIM)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, features: torch.Tensor) -> FeatureStore:
    """These features in three parts, of two augmentation runs of which the second is noise."""
    noise = torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(1))
    runs = torch.stack((features, features + noise), dim=1)
    ids, labels = [f"{row}.png" for row in range(ROWS)], torch.arange(ROWS) % 2
    return store_of(tmp_path_factory.mktemp("similar") / "features", runs, labels, ids, EACH)


@pytest.fixture(scope="module")
def gaussians(store: FeatureStore) -> Gaussians:
    return fit_store(store, FitOptions("auto", "auto")).gaussians


@pytest.fixture
def unit_vectors() -> np.ndarray:
    """Fifty directions of five values each, of which the last ten are copies of the first."""
    vectors = np.random.default_rng(1).normal(size=(50, 5))
    vectors[40:] = vectors[0]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


@pytest.mark.parametrize("rows_at_once", [1, 7, 50, 1000])
def test_the_images_found_are_those_of_a_full_sort(
    unit_vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(similar, "ROWS_AT_ONCE", rows_at_once)

    for row in range(50):
        cosines = (unit_vectors.astype(np.float64) * unit_vectors[row].astype(np.float64)).sum(1)
        order = sorted(range(50), key=lambda other: (-round(cosines[other], 5), other))
        expected = [other for other in order if other != row][:12]
        assert most_similar(unit_vectors, row, 12) == expected


def test_fewer_images_than_asked_for_are_all_found(unit_vectors: np.ndarray) -> None:
    assert sorted(most_similar(unit_vectors[:4], 2, 12)) == [0, 1, 3]
    assert most_similar(unit_vectors[:1], 0, 12) == []


def test_an_image_without_a_vector_neither_finds_nor_is_found(unit_vectors: np.ndarray) -> None:
    unit_vectors[3] = np.nan

    assert most_similar(unit_vectors, 3, 12) == []
    assert 3 not in most_similar(unit_vectors, 0, 49)


def test_vectors_are_whitened_features_of_the_first_run_scaled_to_unit_length(
    store: FeatureStore, gaussians: Gaussians, features: torch.Tensor, tmp_path: Path
) -> None:
    assert write_vectors(tmp_path / "vectors.npy", store, gaussians, ROWS)

    vectors = np.load(tmp_path / "vectors.npy")
    assert (vectors.shape, vectors.dtype) == ((ROWS, DIM), np.float16)
    whitened = gaussians.whiten(features).numpy()
    # As many directions as dimensions turn the space, which leaves cosines as they are.
    expected = whitened / np.linalg.norm(whitened, axis=1, keepdims=True)
    cosines = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.testing.assert_allclose(cosines, expected @ expected.T, atol=3e-3)


def test_directions_between_classes_come_first_and_wide_ones_within_classes_next(
    gaussians: Gaussians, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("difficulty_service.reports.map.MAX_DIRECTIONS", 3)

    directions = similarity_directions(gaussians)

    np.testing.assert_allclose(directions.T @ directions, np.eye(3), atol=1e-10)
    means = gaussians.whitened_means.numpy()
    between = (means[1] - means[0]) / np.linalg.norm(means[1] - means[0])
    assert abs(between @ directions[:, 0]) == pytest.approx(1)
    # Weights of the features in the other two: those with the largest variances.
    weights = np.abs(np.linalg.solve(gaussians.within.whitening.numpy(), directions))
    assert set(weights[:, 1:].argmax(axis=0)) == {2, 3}


@pytest.mark.parametrize(("num_samples", "rank"), [(300, 70), (40, 37)])
def test_directions_are_those_of_a_full_decomposition_of_the_whitening_map(
    num_samples: int, rank: int
) -> None:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(num_samples, 70, generator=generator).double()
    labels = torch.arange(num_samples) % 3
    gaussians = fit(features * torch.logspace(-2, 0, 70), labels, 3, FitOptions("none"))

    directions = similarity_directions(gaussians)

    left, _, _ = np.linalg.svd(gaussians.within.whitening.numpy(), full_matrices=False)
    widest = np.hstack([discriminants(gaussians), left[:, ::-1][:, :MAX_DIRECTIONS]])
    expected, _ = np.linalg.qr(widest)
    assert gaussians.within.rank == rank
    cosines = np.abs((directions * expected[:, :MAX_DIRECTIONS]).sum(axis=0))
    np.testing.assert_allclose(cosines, 1, atol=1e-8)


def test_directions_of_the_same_variance_are_orthonormal() -> None:
    generator = torch.Generator().manual_seed(2)
    # Two of twelve samples are alike, and all other directions have the variance of the ridge.
    features = torch.randn(12, 400, generator=generator).double()[torch.arange(12) // 2]
    gaussians = fit(features, torch.arange(12) % 3, 3, FitOptions("0.5"))

    directions = similarity_directions(gaussians)

    np.testing.assert_allclose(directions.T @ directions, np.eye(MAX_DIRECTIONS), atol=1e-10)


def test_rows_of_a_score_file_in_another_order_get_the_vectors_of_their_ids(
    store: FeatureStore, gaussians: Gaussians, tmp_path: Path
) -> None:
    rows = np.random.default_rng(2).permutation(ROWS)[:50]
    ids = pa.array([*(f"{row}.png" for row in rows), "elsewhere.png"])

    write_vectors(tmp_path / "all.npy", store, gaussians, ROWS)
    assert write_vectors(tmp_path / "some.npy", store, gaussians, 51, ids)

    some = np.load(tmp_path / "some.npy")
    np.testing.assert_array_equal(some[:50], np.load(tmp_path / "all.npy")[rows])
    assert np.isnan(some[50]).all()


def test_features_of_other_images_leave_no_file(
    store: FeatureStore, gaussians: Gaussians, tmp_path: Path
) -> None:
    assert not write_vectors(tmp_path / "vectors.npy", store, gaussians, 1, pa.array(["other"]))

    assert list(tmp_path.iterdir()) == []
