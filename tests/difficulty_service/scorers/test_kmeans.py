"""Distance to the nearest K-means centroid."""

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MissingPackage, StatisticsError
from difficulty_service.scorers.kmeans import fit_kmeans, kmeans_distance

NUM_GROUPS = 4


@pytest.fixture
def groups() -> Tensor:
    """Four tight groups of 50 samples in 6 dimensions."""
    generator = torch.Generator().manual_seed(0)
    centres = 20 * torch.eye(6)[:NUM_GROUPS]
    noise = torch.randn(50 * NUM_GROUPS, 6, generator=generator)
    return centres.repeat_interleave(50, dim=0) + noise


def naive_distance(features: Tensor, centroids: Tensor) -> np.ndarray:
    rows, points = features.double().numpy(), centroids.double().numpy()
    return np.array([min(np.sqrt(((row - point) ** 2).sum()) for point in points) for row in rows])


def test_the_score_is_the_distance_to_the_nearest_centroid(groups: Tensor) -> None:
    centroids = groups[::30]

    distances = kmeans_distance(groups, centroids)

    assert distances.shape == (200,)
    np.testing.assert_allclose(distances, naive_distance(groups, centroids), rtol=1e-5, atol=1e-5)


def test_a_distance_far_from_the_origin_is_as_exact_as_one_near_it(groups: Tensor) -> None:
    far, centroids = groups + 4096, groups[::30] + 4096

    distances = kmeans_distance(far, centroids)

    np.testing.assert_allclose(distances, naive_distance(far, centroids), rtol=1e-4, atol=1e-5)


def test_centroids_are_means_of_the_samples_nearest_to_them(groups: Tensor) -> None:
    centroids = fit_kmeans(groups, num_clusters=NUM_GROUPS, seed=0)

    nearest = torch.cdist(groups, centroids).argmin(dim=1)
    means = torch.stack([groups[nearest == cluster].mean(dim=0) for cluster in range(NUM_GROUPS)])
    torch.testing.assert_close(centroids, means, rtol=1e-4, atol=1e-4)


def test_centroids_far_from_the_origin_are_as_exact_as_near_it() -> None:
    features = torch.randn(5000, 256, generator=torch.Generator().manual_seed(0))
    near = fit_kmeans(features, num_clusters=50, seed=0)

    far = fit_kmeans(features + 256, num_clusters=50, seed=0)

    def spread(centroids: Tensor) -> float:
        return kmeans_distance(features, centroids).mean().item()

    assert spread(far - 256) == pytest.approx(spread(near), rel=1e-3)


def test_a_sample_between_the_groups_is_harder_than_every_sample_of_a_group(groups: Tensor) -> None:
    centroids = fit_kmeans(groups, num_clusters=NUM_GROUPS, seed=0)

    between = kmeans_distance(groups.mean(dim=0, keepdim=True), centroids)

    assert (between > kmeans_distance(groups, centroids)).all()


def test_the_same_seed_gives_the_same_centroids(groups: Tensor) -> None:
    first, second = (fit_kmeans(groups, num_clusters=7, seed=3) for _ in range(2))

    assert torch.equal(first, second)


def test_half_precision_and_strided_features_are_accepted(groups: Tensor) -> None:
    strided = groups.half().T.contiguous().T

    centroids = fit_kmeans(strided, num_clusters=NUM_GROUPS, seed=0)
    distances = kmeans_distance(strided, centroids)

    assert centroids.dtype == distances.dtype == torch.float32


@pytest.mark.parametrize("num_clusters", [0, 201])
def test_an_invalid_number_of_clusters_is_refused_with_the_number_of_samples(
    groups: Tensor, num_clusters: int
) -> None:
    with pytest.raises(StatisticsError, match=f"{num_clusters} clusters of 200 samples"):
        fit_kmeans(groups, num_clusters=num_clusters, seed=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_feature_that_is_not_finite_is_refused_by_row(groups: Tensor, value: float) -> None:
    groups[17, 2] = value

    with pytest.raises(StatisticsError, match="row 17"):
        fit_kmeans(groups, num_clusters=NUM_GROUPS, seed=0)
    with pytest.raises(StatisticsError, match="row 17"):
        kmeans_distance(groups, groups[:2])


def test_a_missing_faiss_raises_an_error_with_both_install_commands(
    groups: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)

    with pytest.raises(MissingPackage, match=r"\[cpu\].*\[gpu\]"):
        fit_kmeans(groups, num_clusters=NUM_GROUPS, seed=0)
