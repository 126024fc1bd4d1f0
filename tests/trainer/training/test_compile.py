"""A compiled model is one graph, so that Python comes between no two of its kernels."""

from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import trainer

NUM_SAMPLES, BATCH_SIZE = 72, 16
RECIPE: dict[str, Any] = {
    "name": "compiled",
    "data": {"kind": "images", "augmentation": "flip_crop"},
    "model": {"name": "small_resnet"},
    "loss": {"name": "cross_entropy"},
    "optimiser": {"name": "sgd", "learning_rate": 0.01},
    "training": {"epochs": 1, "batch_size": BATCH_SIZE, "precision": "fp32", "trackers": []},
}


@pytest.fixture
def _without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes the graphs as always, and runs them without compiling their operations."""
    compiled = partialmethod(nn.Module.compile, backend="eager")
    monkeypatch.setattr(nn.Module, "compile", compiled)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def losses(folder: Path, settings: dict[str, Any]) -> list[float]:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (NUM_SAMPLES, 8, 8, 3)).astype(np.uint8)
    data = images, np.arange(NUM_SAMPLES) % 4
    trained = trainer.train(
        RECIPE,
        settings=settings,
        train=data,
        test=data,
        out=folder,
        device="cpu",
        progress=False,
    )
    return [float(epoch["train_loss"]) for epoch in trained.history]


@pytest.mark.long
@pytest.mark.usefixtures("_without_kernels")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"training.precision": "bf16", "training.ema_decay": 0.9},
        {"training.mixing": "mixup", "data.augmentation": "flip"},
    ],
    ids=["plain", "bf16", "mixup"],
)
def test_a_compiled_model_is_one_graph_and_learns_the_same(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    compiled = losses(tmp_path / "compiled", {**settings, "training.compile": True})

    assert not counters["graph_break"]
    # Of whole batches, the last one and those of an evaluation, once more for sizes that vary.
    assert 1 <= counters["stats"]["unique_graphs"] <= 6
    assert compiled == pytest.approx(losses(tmp_path / "plain", settings), rel=1e-5)
