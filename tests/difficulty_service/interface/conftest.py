"""Scores of three overlapping classes, and other features."""

import numpy as np
import pytest

from difficulty_service.interface.score import score
from difficulty_service.interface.scores import Scores
from tests.overlapping_classes import FEATURES, LABELS


@pytest.fixture(scope="session")
def scores() -> Scores:
    return score(FEATURES, LABELS)


@pytest.fixture
def noisy() -> Scores:
    """Scores of the same samples by other features."""
    noise = 0.5 * np.random.default_rng(1).standard_normal(FEATURES.shape)
    return score(FEATURES + noise, LABELS)


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
