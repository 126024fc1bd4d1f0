"""Typical samples of clusters that can be told apart by eye."""

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.scorers import typical
from difficulty_service.scorers.pool import Pool
from difficulty_service.scorers.typical import choose_typical

SIZES = (30, 20, 10)

SEED = 1
"""One from which K-means finds the three clusters."""


@pytest.fixture
def clusters() -> tuple[Tensor, np.ndarray]:
    """Three clusters of unit vectors, far from each other, and the cluster of each."""
    generator = torch.Generator().manual_seed(0)
    cluster = np.repeat(np.arange(3), SIZES)
    noise = 0.1 * torch.randn(len(cluster), 4, generator=generator)
    return torch.nn.functional.normalize(torch.eye(4)[torch.from_numpy(cluster)] + noise), cluster


def most_typical(features: Tensor, rows: np.ndarray) -> list[int]:
    """Rows of a cluster by the mean distance to their twenty nearest neighbours in it."""
    some = features[torch.from_numpy(rows)].double()
    distances = torch.cdist(some, some).sort(dim=1).values[:, 1:21].mean(dim=1)
    return rows[distances.argsort().numpy()].tolist()


def test_the_largest_cluster_comes_first_with_the_sample_of_the_nearest_neighbours(
    clusters: tuple[Tensor, np.ndarray],
) -> None:
    features, cluster = clusters

    chosen = choose_typical(Pool(np.ones(len(features), bool), features, seed=SEED), 3)

    assert cluster[chosen].tolist() == [0, 1, 2]
    for label, row in enumerate(chosen):
        assert row == most_typical(features, np.flatnonzero(cluster == label))[0]


def test_clusters_with_labels_come_last_and_what_is_taken_is_not_chosen(
    clusters: tuple[Tensor, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typical, "MOST_CLUSTERS", 3)
    features, cluster = clusters
    best = most_typical(features, np.flatnonzero(cluster == 0))
    free = np.ones(len(features), bool)
    free[best[0]] = False

    chosen = choose_typical(Pool(free, features, covered=torch.eye(4)[1:2], seed=SEED), 4)

    assert cluster[chosen].tolist() == [2, 0, 1, 2]
    assert chosen[1] == best[1]


def test_every_sample_can_be_chosen(clusters: tuple[Tensor, np.ndarray]) -> None:
    features, _ = clusters

    chosen = choose_typical(Pool(np.ones(len(features), bool), features), 100)

    assert sorted(chosen.tolist()) == list(range(len(features)))


def test_the_same_seed_chooses_the_same_samples(clusters: tuple[Tensor, np.ndarray]) -> None:
    features, _ = clusters
    pools = [Pool(np.ones(len(features), bool), features, seed=4) for _ in range(2)]

    one, other = (choose_typical(pool, 10).tolist() for pool in pools)

    assert one == other
