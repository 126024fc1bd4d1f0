"""Golden numbers of the published code, and stores of features of several runs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.part import Part
from difficulty_service.features.store import create_store

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="session")
def golden() -> dict[str, Tensor]:
    """Inputs, values and gradients by name; see tests/data/README.md."""
    with np.load(DATA / "uncertainty.npz", allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


@pytest.fixture
def write_runs(tmp_path: Path) -> Callable[..., str]:
    """Writes a store of two augmentation runs in parts of four samples; gives its path."""

    def write(name: str = "runs", features: Tensor | None = None, **changes: object) -> str:
        values = torch.randn(10, 2, 6) if features is None else features
        ids = [f"{row}.png" for row in range(len(values)) for _ in range(2)]
        labels = torch.arange(len(values)).repeat_interleave(2) % 3
        runs = torch.arange(2).repeat(len(values))
        rows = values.flatten(0, 1)
        starts = range(0, len(rows), 8)
        description = {
            "class_names": ("bird", "cat", "dog"),
            "num_shards": len(starts) + 1,
            "augment_runs": 2,
            "backbone": "builtin",
            "feature_dim": 6,
        }
        store = create_store(tmp_path / name, FeatureDescription.of(description | changes))
        for shard, start in enumerate(starts):
            some = slice(start, start + 8)
            store.write_part(shard, Part(ids[some], labels[some], runs[some], rows[some]), [])
        empty = torch.empty(0, dtype=torch.int64)
        store.write_part(len(starts), Part([], empty, empty, torch.empty(0, 6)), [])
        return str(tmp_path / name)

    return write
