"""Mean distance to the nearest neighbours."""

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.scorers.knn import EXACT_UP_TO, knn_distance


@pytest.fixture
def features() -> Tensor:
    """300 samples in 8 dimensions, the first ten of them twice."""
    samples = torch.randn(290, 8, generator=torch.Generator().manual_seed(0))
    return torch.cat([samples, samples[:10]])


def naive_distance(
    queries: Tensor, references: Tensor, num_neighbours: int, *, exclude_self: bool
) -> np.ndarray:
    points = references.double().numpy()
    means = []
    for row, query in enumerate(queries.double().numpy()):
        distances = np.sqrt(((points - query) ** 2).sum(axis=1))
        if exclude_self:
            distances = np.delete(distances, row)
        means.append(np.sort(distances)[:num_neighbours].mean())
    return np.array(means)


@pytest.mark.parametrize("num_neighbours", [1, 5, 298])
def test_a_distance_is_the_mean_over_the_nearest_others(
    features: Tensor, num_neighbours: int
) -> None:
    distances = knn_distance(features, features, num_neighbours, exclude_self=True)

    expected = naive_distance(features, features, num_neighbours, exclude_self=True)
    np.testing.assert_allclose(distances, expected, rtol=1e-5, atol=1e-6)


def test_new_samples_may_be_their_own_neighbours(features: Tensor) -> None:
    queries = features[:50] + 0.1

    distances = knn_distance(queries, features, 5, exclude_self=False)

    expected = naive_distance(queries, features, 5, exclude_self=False)
    np.testing.assert_allclose(distances, expected, rtol=1e-5, atol=1e-6)


def test_a_duplicate_is_a_neighbour_at_distance_zero(features: Tensor) -> None:
    distances = knn_distance(features, features, 1, exclude_self=True)

    duplicated = torch.cat([distances[:10], distances[290:]])
    assert (duplicated == 0).all()
    assert (distances[10:290] > 0).all()


def test_a_sample_with_more_duplicates_than_neighbours_still_has_neighbours() -> None:
    features = torch.cat([torch.ones(20, 3), torch.zeros(5, 3)])

    distances = knn_distance(features, features, 3, exclude_self=True)

    assert torch.equal(distances, torch.zeros(25))


def test_a_distance_far_from_the_origin_is_as_exact_as_one_near_it() -> None:
    # Enough rows for faiss to take the fast way, whose distances cancel far from the origin.
    far = 256 + torch.randn(1000, 256, generator=torch.Generator().manual_seed(0))

    distances = knn_distance(far, far, 5, exclude_self=True)

    expected = naive_distance(far, far, 5, exclude_self=True)
    np.testing.assert_allclose(distances, expected, rtol=1e-5)


def test_half_precision_and_strided_features_are_accepted(features: Tensor) -> None:
    strided = features.half().T.contiguous().T

    distances = knn_distance(strided, strided, 5, exclude_self=True)

    expected = naive_distance(strided, strided, 5, exclude_self=True)
    np.testing.assert_allclose(distances, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_an_approximate_search_hardly_differs_from_an_exact_one() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(100, 16, generator=generator)
    references = centres.repeat(EXACT_UP_TO // 100 + 1, 1)
    references += torch.randn(references.shape, generator=generator)
    queries = references[:200] + 0.5

    distances = knn_distance(queries, references, 10, exclude_self=False).numpy()

    exact = naive_distance(queries, references, 10, exclude_self=False)
    assert (distances >= exact * (1 - 1e-5)).all()
    np.testing.assert_allclose(distances, exact, rtol=0.05)
    assert np.mean(distances / exact - 1) < 0.002


@pytest.mark.slow
def test_more_lists_are_searched_if_the_nearest_hold_too_few_references() -> None:
    references = torch.randn(EXACT_UP_TO + 1, 2, generator=torch.Generator().manual_seed(0))
    num_neighbours = 20_000

    distances = knn_distance(references[:3], references, num_neighbours, exclude_self=False)

    exact = naive_distance(references[:3], references, num_neighbours, exclude_self=False)
    np.testing.assert_allclose(distances, exact, rtol=1e-4)


@pytest.mark.parametrize("num_neighbours", [0, 300])
def test_an_invalid_number_of_neighbours_is_refused_with_the_number_of_references(
    features: Tensor, num_neighbours: int
) -> None:
    with pytest.raises(StatisticsError, match=f"{num_neighbours} neighbours among 300 references"):
        knn_distance(features, features, num_neighbours, exclude_self=True)


def test_self_is_only_excluded_if_queries_and_references_are_the_same(features: Tensor) -> None:
    with pytest.raises(StatisticsError, match=r"\(5, 8\).*\(300, 8\)"):
        knn_distance(features[:5], features, 3, exclude_self=True)


def test_a_feature_that_is_not_finite_is_refused_by_row(features: Tensor) -> None:
    features[5, 1] = torch.nan

    with pytest.raises(StatisticsError, match="row 5"):
        knn_distance(features[:20], torch.ones(30, 8), 3, exclude_self=False)
    with pytest.raises(StatisticsError, match="row 5"):
        knn_distance(torch.ones(30, 8), features, 3, exclude_self=False)
