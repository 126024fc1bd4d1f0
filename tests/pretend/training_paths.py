"""Training on a pretended GPU, through `trainer.train`."""

import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import trainer
from difficulty_service.base.errors import TrainingError
from tests.pretend.counting import Rounds
from trainer.commands.evaluate import evaluate as evaluate_command
from trainer.training.accelerator import make_accelerator
from trainer.training.step import GradientStep

NUM_SAMPLES, NUM_CLASSES, BATCH_SIZE = 288, 4, 32
STEPS = 8
"""Steps of an epoch without its validation samples, fewer than there are between two checks."""

FEATURES: dict[str, Any] = {
    "name": "pretended",
    "data": {"kind": "features", "validation": 1 / 9},
    "model": {"name": "probe"},
    "loss": {"name": "cross_entropy"},
    "optimiser": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9},
    "training": {"epochs": 2, "batch_size": BATCH_SIZE, "precision": "fp32", "trackers": []},
}
IMAGES = FEATURES | {
    "data": {"kind": "images", "validation": 1 / 9, "augmentation": "flip_crop"},
    "model": {"name": "small_resnet"},
}


def train(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What a step of the first epoch waits for, and the loss of each epoch.

    Args:
        kind: "features" or "images".
        settings: What the recipe says otherwise, by its keys.
    """
    rounds = Rounds()
    take = GradientStep.take

    def counted(self: GradientStep, *arguments: Any) -> torch.Tensor:
        result = take(self, *arguments)
        rounds.end()  # a round is the batch of a step and the step
        return result

    GradientStep.take = counted  # type: ignore[method-assign]
    try:
        on_gpu = run(kind, settings, "cuda")
    finally:
        GradientStep.take = take  # type: ignore[method-assign]
    on_cpu = run(kind, settings, "cpu")
    return {**rounds.each(STEPS - 1), "losses": [on_gpu, on_cpu]}


def run(kind: str, settings: dict[str, Any], device: str) -> list[float]:
    """The loss of each epoch of a run on a device."""
    samples, labels = _samples(kind)
    with tempfile.TemporaryDirectory() as folder:
        trained = trainer.train(
            IMAGES if kind == "images" else FEATURES,
            settings=settings,
            train=(samples, labels),
            test=(samples, labels),
            out=Path(folder) / "run",
            device=device,
            progress=False,
        )
    return [float(epoch["train_loss"]) for epoch in trained.history]


def evaluate(device: str) -> None:
    """Trains on the CPU, and evaluates by the command on a device and the same samples."""
    features, labels = _samples("features")
    with tempfile.TemporaryDirectory() as folder:
        run, data = Path(folder) / "run", Path(folder) / "data.npz"
        np.savez(data, features=features, labels=labels)
        trainer.train(FEATURES, train=(features, labels), out=run, device="cpu", progress=False)
        with redirect_stdout(io.StringIO()):
            evaluate_command(run, data=str(data), device=device)


def launched_with(names: str) -> str:
    """The device of a process of `accelerate launch` for GPUs of some names, or its refusal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELERATE_USE_CPU", "false")
        patch.setenv("CUDA_VISIBLE_DEVICES", names)
        try:
            return str(make_accelerator("auto", "fp32").device)
        except TrainingError as error:
            return str(error)


def _samples(kind: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    random = np.random.default_rng(0)
    labels = np.arange(NUM_SAMPLES) % NUM_CLASSES
    if kind == "images":
        return random.integers(0, 256, (NUM_SAMPLES, 8, 8, 3)).astype(np.uint8), labels
    means = random.normal(size=(NUM_CLASSES, 16))
    return (means[labels] + random.normal(size=(NUM_SAMPLES, 16))).astype(np.float32), labels
