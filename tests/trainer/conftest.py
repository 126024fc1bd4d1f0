"""Small runs: folders of features and of images, recipes for them, and recording callbacks."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accelerate import Accelerator
from PIL import Image

from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.tiff_files import tiff
from trainer.config import Recipe
from trainer.recipes.file import recipe_from_dict
from trainer.training.accelerator import make_accelerator

MakeRecipe = Callable[..., Recipe]

CLASSES = ("bird", "cat", "dog")
"""Names of the classes of the features, in the order of their labels."""


@pytest.fixture(autouse=True)
def nothing_kept_from_other_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Has runs keep what they find out of datasets in a folder of the test."""
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))


@pytest.fixture
def accelerator() -> Accelerator:
    """This process alone, on the CPU."""
    return make_accelerator("cpu", "fp32")


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory, write_features: Callable[..., str]) -> str:
    """Ninety samples of six features, thirty of each class."""
    return write_features(tmp_path_factory.mktemp("data") / "features")


@pytest.fixture(scope="session")
def test_features(
    tmp_path_factory: pytest.TempPathFactory, write_features: Callable[..., str]
) -> str:
    """Thirty-one test samples, a number that no batch size divides."""
    return write_features(tmp_path_factory.mktemp("data") / "test", num_samples=31, seed=1)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sixty images of 8x8 pixels, twenty of each class, which differ in brightness."""
    folder = tmp_path_factory.mktemp("data") / "images"
    generator = np.random.default_rng(0)
    for number in range(60):
        path = folder / ("bird", "cat", "dog")[number % 3] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 120, (8, 8, 3)) + 60 * (number % 3)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return str(folder)


@pytest.fixture(scope="session")
def probe_recipe(features: str) -> MakeRecipe:
    """Makes a recipe for a linear probe; each argument changes keys of one table."""

    def make(**tables: Mapping[str, Any]) -> Recipe:
        return changed(
            {
                "name": "tiny",
                "data": {"train": features, "kind": "features", "validation": 0.2},
                "model": {"name": "probe"},
                "optimiser": {"learning_rate": 0.05},
                "training": {"epochs": 3, "batch_size": 16, "precision": "fp32"},
            },
            tables,
        )

    return make


@pytest.fixture(scope="session")
def image_recipe(images: str) -> MakeRecipe:
    """Makes a recipe for a tiny residual network with every kind of state."""

    def make(**tables: Mapping[str, Any]) -> Recipe:
        return changed(
            {
                "name": "tiny-images",
                "data": {
                    "train": images,
                    "validation": 0.2,
                    "augmentation": "flip_crop",
                    "crop_padding": 1,
                },
                "model": {"name": "small_resnet", "widths": [4, 8], "blocks": [1, 1]},
                "loss": {"name": "adafocal"},
                "optimiser": {"learning_rate": 0.05, "gradient_clip": 2.0},
                "schedule": {"name": "cosine", "warmup": 0.2},
                "training": {"epochs": 3, "batch_size": 16, "precision": "fp32", "ema_decay": 0.8},
            },
            tables,
        )

    return make


@pytest.fixture(scope="session")
def forgetful_probe(probe_recipe: MakeRecipe, test_features: str) -> Recipe:
    """Dropout, a loss that remembers each sample, AdamW and a moving average."""
    return probe_recipe(
        data={"test": test_features},
        model={"hidden": [8], "dropout": 0.5},
        loss={"name": "correctness_ranking"},
        optimiser={"name": "adamw", "learning_rate": 0.01},
        training={"batch_size": 24, "ema_decay": 0.8},
    )


def changed(values: dict[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> Recipe:
    for table, changes in tables.items():
        values[table] = values.get(table, {}) | changes
    return recipe_from_dict(values, "the recipe of the test")


@pytest.fixture(scope="session")
def locations(
    features: str, test_features: str, images: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The locations that the recipes name in capitals."""
    folder = tmp_path_factory.mktemp("locations")
    ids = [f"{Path(features).name}/{number:03d}.png" for number in range(90)]
    for name in ("texts.parquet", "other_texts.parquet"):
        _write_texts(folder / name)
    _write_images(folder / "images.parquet", Path(images))
    trees = ["(0 (1 not) (1 good))", "(1 (0 no) (1 (1 so) (0 bad)))"] * 15
    pq.write_table(pa.table({"tree": trees, "label": [0, 1] * 15}), folder / "trees.parquet")
    noisy = {"id": ids, "label": [(row + 1) % 3 for row in range(len(ids))], "image": ids}
    pq.write_table(pa.table(noisy), folder / "labels.parquet")
    damaged = folder / "damaged"
    for file in sorted(Path(images).rglob("*.png")):
        copy = damaged / file.relative_to(images)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes()[: 20 if file.name == "07.png" else None])
    random = np.random.default_rng(0)
    for number in range(30):
        place = folder / "deep" / str(number % 3) / f"{number}.tif"
        place.parent.mkdir(parents=True, exist_ok=True)
        pages = random.integers(0, 4096, (2, 8, 8, 3), np.uint16)
        place.write_bytes(tiff(list(pages)))
    _write_scores(folder / "scores.parquet", ids)
    _write_scores(folder / "other.parquet", ids[::-1])
    _write_scores(folder / "other_labels.parquet", ids, probability=0.9)
    _write_scores(folder / "fewer.parquet", ids[10:])
    _write_scores(folder / "unreliable.parquet", ids, reliable=False)
    return {
        "FEATURES": features,
        "TEST_FEATURES": test_features,
        "IMAGES": images,
        "DAMAGED_IMAGES": str(damaged),
        "DEEP_IMAGES": str(folder / "deep"),
        "TEXTS": str(folder / "texts.parquet"),
        "OTHER_TEXTS": str(folder / "other_texts.parquet"),
        "TREES": str(folder / "trees.parquet"),
        "IMAGE_TABLE": str(folder / "images.parquet"),
        "LABELS": str(folder / "labels.parquet"),
        "SCORES": str(folder / "scores.parquet"),
        "OTHER_SCORES": str(folder / "other.parquet"),
        "OTHER_LABEL_SCORES": str(folder / "other_labels.parquet"),
        "FEWER_SCORES": str(folder / "fewer.parquet"),
        "UNRELIABLE_SCORES": str(folder / "unreliable.parquet"),
    }


def _write_scores(
    path: Path, ids: Sequence[str], probability: float = 0.1, **provenance: object
) -> None:
    """Scores of the features: every fourth label is right with the given probability."""
    numbers = [int(Path(each).stem) for each in ids]
    names, others = (
        pa.array([CLASSES[(number + step) % 3] for number in numbers]).dictionary_encode()
        for step in (0, 1)
    )
    shares = [probability if number % 4 == 0 else 0.8 for number in numbers]
    table = pa.table(
        {
            "sample_id": list(ids),
            "label": pa.array([number % 3 for number in numbers], pa.int32()),
            "label_name": names,
            "suspicion": pa.array([0.0] * len(ids), pa.float64()),
            "p_wrong": pa.array([1 - share for share in shares], pa.float32()),
            "suggested_label": pa.array([(number + 1) % 3 for number in numbers], pa.int32()),
            "suggested_label_name": others,
            "rmd": pa.array([float(number) for number in range(len(ids))], pa.float64()),
            "knn": pa.array([float(number % 7) for number in range(len(ids))], pa.float32()),
        }
    )
    write_scores(path, table, Provenance.of(provenance))


def _write_texts(path: Path) -> None:
    rows = range(60)
    columns = {
        "text": [f"the word w{row % 9} of a{row % 5} text" for row in rows],
        "other_text": [f"quite another {row % 4}" for row in rows],
        "label": [row % 3 for row in rows],
        "other_label": [row // 2 % 3 for row in rows],
        "key": [f"k{row:02d}" for row in rows],
        "other_key": [f"o{row:02d}" for row in rows],
        "split": ["a" if row < 30 else "b" for row in rows],
        "votes": [[int(row % 3 == label) * 3 + row % 2 for label in range(3)] for row in rows],
    }
    pq.write_table(pa.table(columns), path)


def _write_images(path: Path, folder: Path) -> None:
    files = [file.read_bytes() for file in sorted(folder.rglob("*.png"))]
    columns = {
        "image": files,
        "other_image": files[::-1],
        "label": [row // 20 for row in range(len(files))],
    }
    pq.write_table(pa.table(columns), path)
