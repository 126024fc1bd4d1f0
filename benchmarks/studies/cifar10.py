"""CIFAR-10 with human labels: the features and difficulty scores that the studies use."""

import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.dataset as ds
import torch

from benchmarks.real_data import shared_folder
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.store import create_store, open_store

LABELS = {
    "label": "the official labels",
    "noisy_aggre": "CIFAR-10N's aggregated labels, 9 % wrong",
    "noisy_worst": "CIFAR-10N's worst labels, 40 % wrong",
}
"""Columns of the training tables."""


@dataclass(frozen=True)
class Cifar10:
    """Locations of the data.

    Attributes:
        train: Glob of the training tables.
        test: The test table.
        features: Folder of features of the training images, by backbone.
        test_features: Folder of features of the test images.
        scores: Score file of the training images with official labels, by backbone.
    """

    train: str
    test: str
    features: dict[str, Path]
    test_features: Path
    scores: dict[str, Path]


PLAIN = ("--shrinkage", "none")
"""The formulas of the paper; 50,000 images are too few for that by default with MobileNetV2."""


def prepare(folder: Path, names: Collection[str] = ("builtin", "MobileNetV2")) -> Cifar10 | None:
    """Extracts and scores what is missing; None where the images are not available.

    Args:
        folder: Folder for features and scores.
        names: Backbones to extract the training images with; the test images are for `builtin`.
    """
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
    for name in names:
        options = backbones[name]
        scores[name] = folder / f"{name.lower()}.parquet"
        if not scores[name].exists():
            options = ["--id-column", "index", *PLAIN, *options]
            run_difficulty("score", train, *options, "--out", scores[name])
    test_features = folder / "test-builtin"
    if not (test_features / "errors.parquet").exists():
        options = backbones["builtin"]
        run_difficulty("extract", test, "--id-column", "index", *options, "--out", test_features)
    features = {name: path.with_suffix(".features") for name, path in scores.items()}
    return Cifar10(train, str(test), features, test_features, scores)


def official_labels(data: Cifar10) -> dict[str, int]:
    """The official label of every training image, by sample id."""
    return _column(data, "label")


def relabelled(data: Cifar10, column: str) -> tuple[dict[str, Path], dict[str, Path]]:
    """Features and scores by backbone, for a column of labels."""
    if column == "label":
        return data.features, data.scores
    labels = _column(data, column)
    stores, scores = {}, {}
    for name, path in data.scores.items():
        stores[name] = path.with_name(f"{path.stem}-{column}.features")
        scores[name] = path.with_name(f"{path.stem}-{column}.parquet")
        if not scores[name].exists():
            with_labels(data.features[name], labels, column, stores[name])
            run_difficulty("score", stores[name], *PLAIN, "--out", scores[name])
    return stores, scores


def _column(data: Cifar10, column: str) -> dict[str, int]:
    files = sorted(Path(data.train).parent.glob(Path(data.train).name))
    table = ds.dataset(files).to_table(columns=["index", column])
    ids = (str(index) for index in table["index"].to_pylist())
    return dict(zip(ids, table[column].to_pylist(), strict=True))


def with_labels(source: Path, labels: Mapping[str, int], column: str, target: Path) -> Path:
    """A copy of a feature store with other labels, which is made where it is missing."""
    store = open_store(source)
    description = {**store.description.to_json(), "label_column": column}
    copy = create_store(target, FeatureDescription.of(description))
    for shard in copy.missing_shards():
        table = store.read_shard(shard)
        new = torch.tensor([labels[sample_id] for sample_id in table.sample_ids])
        copy.write_shard(shard, replace(table, labels=new), [])
    return target


def run_difficulty(*arguments: object) -> None:
    """Runs the command of this environment; raises CalledProcessError where it fails."""
    command = Path(sys.executable).with_name("difficulty")
    subprocess.run([command, *map(str, arguments)], check=True)  # noqa: S603 - our own command
