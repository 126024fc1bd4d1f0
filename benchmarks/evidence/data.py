"""The images of the study and their features, extracted once as `difficulty extract` does."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import torch
from numpy.typing import NDArray

from benchmarks.real_data import skipped
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.timm_models import build, find_config, preprocessing_of
from difficulty_service.backbones.weights import read_weights
from difficulty_service.backbones.weights_files import PACKAGED_WEIGHTS
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.features.store import open_store
from difficulty_service.scoring.pipeline import execute

MOBILENET, MOBILENET_SIZE = "mobilenetv2_100", 128
BACKBONES = ("builtin", "MobileNetV2")
LARGE_MOBILENET = "MobileNetV2-224"
"""The same network with images of the size that it was trained with."""
NAMES = {
    "builtin": "builtin",
    "MobileNetV2": f"timm:{MOBILENET}-{MOBILENET_SIZE}px",
    LARGE_MOBILENET: f"timm:{MOBILENET}",
    "builtin-photos": "builtin-photos",
}
"""Name of every backbone of the study in the descriptions of its features."""


@dataclass(frozen=True)
class Source:
    """Tables of images.

    Attributes:
        tables: Glob of the files within the folder of real data.
        id_column: Column of unique ids; None to number the rows.
    """

    tables: str
    id_column: str | None = None


SOURCES = {
    "cifar10-train": Source("cifar10_train_*.parquet", "index"),
    "cifar10-test": Source("cifar10_test.parquet", "index"),
    "cifar100-train": Source("cifar100_train_*.parquet"),
    "cifar100-test": Source("cifar100_test.parquet"),
    "tiny-imagenet": Source("tiny_imagenet_val2000.parquet", "filename"),
}


@dataclass(frozen=True)
class Images:
    """Features of images with the labels that their dataset has.

    Attributes:
        features: float32. Shape (samples, dim).
        labels: Shape (samples,).
        positions: Number of each image in its dataset. Shape (samples,).
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    positions: NDArray[np.int64]


@dataclass(frozen=True)
class Study:
    """Where the study finds its images and keeps its results, and how large it is.

    Attributes:
        folder: Folder of all results.
        shared: Folder of real data and weights.
        limit: Number of images of each dataset, evenly spaced; None for all.
    """

    folder: Path
    shared: Path
    limit: int | None = None

    @property
    def weights(self) -> Path:
        """Weights of MobileNetV2."""
        return self.shared / "weights/mobilenetv2_100.imagenet1k.safetensors"

    def store(
        self, source: str, backbone: str, augment_runs: int = 0, *, flip: bool = False
    ) -> Path:
        """Folder of the features of some images."""
        runs = f"-{augment_runs}-runs" if augment_runs else ""
        flipped = "-flip" if flip else ""
        return self.folder / "features" / f"{source}-{backbone.lower()}{flipped}{runs}"


def require_data(study: Study) -> None:
    """Ends the program with the reason where the real data are not at hand."""
    if not (study.shared / "data/cifar10_test.parquet").exists():
        sys.exit(skipped("CIFAR-10"))


def load_mobilenet(name: str, options: BackboneOptions) -> Backbone:
    """MobileNetV2 for inputs of 128 pixels, a third of the time of 224, without a crop."""
    config = find_config(MOBILENET)
    weights = Path(str(options.weights))
    network = build(MOBILENET, config, read_weights(weights), None, str(weights))
    preprocessing = replace(preprocessing_of(config, MOBILENET_SIZE), resize=MOBILENET_SIZE)
    return freeze(name, network, preprocessing, weights, options)


def extract(
    study: Study, source: str, backbone: str, augment_runs: int = 0, *, flip: bool = False
) -> None:
    """Extracts the features that are missing."""
    weights = None if backbone in PACKAGED_WEIGHTS else str(study.weights)
    plan = Plan(
        str(study.shared / "data" / SOURCES[source].tables),
        study.store(source, backbone, augment_runs, flip=flip),
        NAMES[backbone],
        DatasetOptions(
            id_column=SOURCES[source].id_column, label_column="label", limit=study.limit
        ),
        BackboneOptions(weights, flip=flip),
        ExtractOptions(augment_runs=augment_runs),
    )
    load = load_mobilenet if backbone == "MobileNetV2" else load_backbone
    dataset = open_dataset(plan.location, plan.dataset)
    print(f"features of {source} by {backbone}{' and flip' if flip else ''}", flush=True)
    execute(plan, dataset=dataset, load=load)


def read_images(study: Study, source: str, backbone: str, *, flip: bool = False) -> Images:
    """Features and labels in the order of the dataset."""
    store = open_store(study.store(source, backbone, flip=flip))
    shards = [store.read_shard(shard) for shard in range(store.num_shards)]
    ids = [sample_id for each in shards for sample_id in each.sample_ids]
    return Images(
        torch.cat([each.features for each in shards]).float().numpy(),
        torch.cat([each.labels for each in shards]).long().numpy(),
        _positions(study, source, ids),
    )


def _positions(study: Study, source: str, ids: list[str]) -> NDArray[np.int64]:
    """Rows of the tables that some ids stand for."""
    column = SOURCES[source].id_column
    if column is None:
        return np.array([int(sample_id.rpartition("#")[2]) for sample_id in ids])
    known = read_columns(study, source, [column])[column].to_pylist()
    place = {str(each): position for position, each in enumerate(known)}
    return np.array([place[sample_id] for sample_id in ids])


def read_columns(study: Study, source: str, columns: list[str]) -> pa.Table:
    """Columns of all images of a dataset, of which `Images.positions` are rows."""
    pattern = SOURCES[source].tables
    files = sorted((study.shared / "data").glob(pattern))
    return ds.dataset(files).to_table(columns=columns)
