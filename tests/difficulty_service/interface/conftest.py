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


@pytest.fixture
def noisy(features: NDArray[np.float32], labels: NDArray[np.int64]) -> Scores:
    """Scores of the same samples by other features."""
    noise = 0.5 * np.random.default_rng(1).standard_normal(features.shape)
    return score(features + noise, labels)


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Features of 100 samples and their labels, of three classes."""
    generator = np.random.default_rng(0)
    labels = np.arange(100) % 3
    features = generator.standard_normal((100, 8)) + 4 * np.eye(3, 8)[labels]
    return features, np.array(["cat", "dog", "owl"])[labels]


@pytest.fixture(scope="session", autouse=True)
def networks(small_networks: None) -> None:
    """Has this process know the networks of tests."""
