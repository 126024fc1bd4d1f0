"""CIFAR-10 with people's labels: features and difficulty scores that the studies start from."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cifar10:
    """Where everything is.

    Attributes:
        train: Glob of the training tables.
        test: The test table.
        features: Folder of `builtin` features of the training images.
        test_features: Of the test images.
        scores: Score file of the training images, by the backbone it was made with.
    """

    train: str
    test: str
    features: Path
    test_features: Path
    scores: dict[str, Path]


def shared_folder() -> Path:
    """Where real data and weights are."""
    return Path(os.environ.get("DIFFICULTY_SHARED", "../shared"))


def prepare(folder: Path) -> Cifar10 | None:
    """Extracts and scores what is not there yet; None where the images are not at hand."""
    shared = shared_folder()
    train, test = str(shared / "data/cifar10_train_*.parquet"), shared / "data/cifar10_test.parquet"
    if not test.exists():
        return None
    weights = shared / "weights/mobilenetv2_100.imagenet1k.safetensors"
    backbones = {
        "builtin": ["--backbone", "builtin"],
        "MobileNetV2": ["--backbone", "timm:mobilenetv2_100", "--weights", str(weights)],
    }
    scores = {}
    for name, options in backbones.items():
        scores[name] = folder / f"{name.lower()}.parquet"
        if not scores[name].exists():
            _difficulty("score", train, "--id-column", "index", *options, "--out", scores[name])
    test_features = folder / "test-builtin"
    if not (test_features / "errors.parquet").exists():
        options = backbones["builtin"]
        _difficulty("extract", test, "--id-column", "index", *options, "--out", test_features)
    return Cifar10(train, str(test), folder / "builtin.features", test_features, scores)


def _difficulty(*arguments: object) -> None:
    command = Path(sys.executable).with_name("difficulty")
    subprocess.run([command, *map(str, arguments)], check=True)  # noqa: S603 - our own command
