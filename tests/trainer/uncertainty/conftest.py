"""Golden numbers of the published code, and stores of features of several runs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.features.shard import ShardTable
from tests.factories import store_of

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="session")
def golden() -> dict[str, Tensor]:
    """Inputs, values and gradients by name; see tests/data/README.md."""
    with np.load(DATA / "uncertainty.npz", allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


@pytest.fixture
def write_runs(tmp_path: Path) -> Callable[..., str]:
    """Writes a store of two augmentation runs in shards of four samples; gives its path."""

    def write(name: str = "runs", features: Tensor | None = None, **changes: object) -> str:
        values = torch.randn(10, 2, 6) if features is None else features
        ids, labels = [f"{row}.png" for row in range(len(values))], torch.arange(len(values)) % 3
        shards = -(-len(values) // 4)
        usual = {"num_shards": shards + 1, "backbone": "builtin", "feature_dim": 6}
        store = store_of(tmp_path / name, values, labels, ids, shard_size=4, **usual | changes)
        empty = torch.empty(0, dtype=torch.int64)
        store.write_shard(shards, ShardTable([], empty, empty, torch.empty(0, 6)), [])
        return str(tmp_path / name)

    return write
