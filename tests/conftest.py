"""Fixtures that every test may use."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from difficulty_service.feature_store.part import Part
from difficulty_service.feature_store.store import create_store

ROOT = Path(__file__).resolve().parent.parent


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device answers")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and weights that are never part of the project."""
    folder = Path(os.environ.get("DIFFICULTY_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; name their folder in DIFFICULTY_SHARED")
    return folder


@pytest.fixture(scope="session")
def write_features() -> Callable[..., str]:
    """Writes a folder of features of three overlapping classes; gives its path."""

    def write(folder: Path, num_samples: int = 90, seed: int = 0) -> str:
        labels = torch.arange(num_samples) % 3
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(num_samples, 6, generator=generator) + F.one_hot(labels, 6)
        ids = [f"{folder.name}/{number:03d}.png" for number in range(num_samples)]
        names = ("bird", "cat", "dog")
        store = create_store(folder, {"class_names": names, "num_shards": 1, "augment_runs": 0})
        store.write_part(0, Part(ids, labels, torch.zeros(num_samples), features), [])
        return str(folder)

    return write
