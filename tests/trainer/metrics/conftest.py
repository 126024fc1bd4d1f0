"""Logits whose metrics reference implementations computed, and what they gave."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

DATA = Path(__file__).resolve().parents[2] / "data"


Batches = dict[str, tuple[Tensor, Tensor]]
Values = dict[str, dict[str, float]]


@pytest.fixture(scope="session")
def golden_batches() -> Batches:
    """Sets: a small, b 100 classes, x extreme and tied, h many samples, s saturated and tied."""
    arrays = np.load(DATA / "metrics.npz")
    batches = {name: (arrays[f"{name}__logits"], arrays[f"{name}__targets"]) for name in "hs"}
    for name in "abx":
        shared = np.load(DATA / f"losses_{name}.npz")
        batches[name] = (shared["logits"], shared["targets"])
    return {
        name: (torch.from_numpy(logits), torch.from_numpy(targets))
        for name, (logits, targets) in batches.items()
    }


@pytest.fixture(scope="session")
def golden_metrics() -> Values:
    return json.loads((DATA / "metrics.json").read_text())["metrics"]


@pytest.fixture(scope="session")
def golden_ood() -> Values:
    return json.loads((DATA / "metrics.json").read_text())["ood"]


@pytest.fixture(scope="session")
def golden_ood_scores(golden_ood: Values) -> Batches:
    """OOD scores, and whether each sample is OOD."""
    arrays = np.load(DATA / "metrics.npz")
    return {
        name: (
            torch.from_numpy(arrays[f"ood__{name}__score"]),
            torch.from_numpy(arrays[f"ood__{name}__is_ood"]),
        )
        for name in golden_ood
    }


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Logits of 400 samples and 7 classes, right about two times in three."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(7, (400,), generator=generator)
    logits = 2 * torch.randn(400, 7, generator=generator)
    logits[torch.arange(400), targets] += 3
    return logits, targets
