"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest
import torch

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
