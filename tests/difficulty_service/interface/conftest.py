"""Features of three overlapping classes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from difficulty_service.interface.score import score
from difficulty_service.interface.scores import Scores

DIM = 6


@pytest.fixture(scope="session")
def labels() -> NDArray[np.int64]:
    return np.arange(300) % 3


@pytest.fixture(scope="session")
def features(labels: NDArray[np.int64]) -> NDArray[np.float32]:
    noise = np.random.default_rng(0).standard_normal((len(labels), DIM), dtype=np.float32)
    return noise + 1.5 * np.eye(3, DIM, dtype=np.float32)[labels]


@pytest.fixture(scope="session")
def scores(features: NDArray[np.float32], labels: NDArray[np.int64]) -> Scores:
    return score(features, labels)


@pytest.fixture(scope="session", autouse=True)
def networks(small_networks: None) -> None:
    """Has this process know the networks of tests."""
