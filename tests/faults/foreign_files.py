"""Files that other programs write, which have no checksum: their kinds, writers and readers."""

import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import safetensors.torch
import torch

from difficulty_service.analyses.audit.prediction_columns import read_prediction_columns
from difficulty_service.backbones.weights import read_weights
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.features.array_files import read_array_file
from difficulty_service.features.description import read_description
from difficulty_service.marks.files import read_marks
from difficulty_service.scores.joined_files import read_columns
from trainer import run_folder
from trainer.evaluation.prediction_file import read_predictions
from trainer.recipes.file import read_recipe, shipped_recipes

Kind = tuple[str, Callable[[Path], object], Callable[[Path], object]]
"""Name of the file, its writer, and its reader, whose result is compared by its `repr`."""

ROWS = 60
LABELS = np.arange(ROWS) % 3
IDS = [f"photo {row}" for row in range(ROWS)]
NAMES = np.array(["cat", "dog", "Eule é"])
FEATURES = np.random.default_rng(0).standard_normal((ROWS, 6)).astype(np.float32)

TASKS = [
    {
        "data": {"sample_id": each, "given_label": str(row % 3)},
        "annotations": [
            {"result": [{"from_name": "label", "value": {"choices": ["1"]}}], "updated_at": "2025"}
        ],
    }
    for row, each in enumerate(IDS[:9])
]
CLASSIFIED = [
    {"tags": ["keep"], "truth": {"label": "1", "tags": [], "sample_id": each, "given_label": "2"}}
    for each in IDS[:9]
]
ATTRIBUTED = {
    each: {"label": 1, "attributes": {"sample_id": each, "given_label": "2"}} for each in IDS[:9]
}
XML = "".join(
    f'<image id="{row}" name="{row:07d}/{row % 3}/{row}.png"><tag label="1"></tag></image>'
    for row in range(9)
)


def array_values(path: Path, labels: Path | None = None) -> object:
    read = read_array_file(path, labels)
    rows = [read.open_shard(part).features().tolist() for part in range(read.num_shards)]
    return read.class_names, read.labels.tolist(), read.sample_ids.to_pylist(), rows


def features_beside(path: Path) -> Path:
    beside = path.with_name("features.npy")
    np.save(beside, FEATURES)
    return beside


def labels_beside(path: Path) -> object:
    """The labels of a file beside the features, whose default name it has."""
    return array_values(features_beside(path))


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", f"<annotations>{XML}</annotations>")


def json_writer(values: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(values))


def mark_values(path: Path) -> object:
    return read_marks(path, IDS)


def dataset_values(path: Path) -> object:
    dataset = open_dataset(str(path), DatasetOptions())
    return dataset.sample_ids, dataset.labels.tolist(), dataset.class_names, dataset.skipped


def column_values(path: Path) -> object:
    return read_columns(str(path), ["sample_id", "votes"], text_columns=["sample_id"]).to_pydict()


def table(**others: Any) -> pa.Table:  # noqa: ANN401 - columns
    return pa.table({"sample_id": IDS, "votes": FEATURES[:, 0], **others})


def recipe(path: Path) -> None:
    shutil.copy(str(shipped_recipes()["focal_cifar10"]), path)


def store(path: Path) -> None:
    values = {"format_version": 2, "class_names": ["a", "b"], "num_shards": 1, "augment_runs": 0}
    path.write_text(json.dumps({**values, "preprocessing": {"size": [2, [3, {"a": 4}]]}}))


FOREIGN: Mapping[str, Kind] = {
    "npz": (
        "features.npz",
        lambda path: np.savez(path, features=FEATURES, labels=LABELS, ids=np.array(IDS)),
        array_values,
    ),
    "compressed npz": (
        "features.npz",
        lambda path: np.savez_compressed(path, features=FEATURES, labels=NAMES[LABELS]),
        array_values,
    ),
    "npy": (
        "X.npy",
        lambda path: (
            np.save(path, FEATURES),
            np.save(path.with_name("labels.npy"), LABELS),
        ),
        array_values,
    ),
    "npy of labels": (
        "labels.npy",
        lambda path: np.save(path, NAMES[LABELS]),
        labels_beside,
    ),
    "text of labels": (
        "labels.txt",
        lambda path: path.write_text("\n".join(NAMES[LABELS])),
        lambda path: array_values(features_beside(path), path),
    ),
    "parquet": (
        "features.parquet",
        lambda path: pq.write_table(table(features=FEATURES.tolist(), label=LABELS), path),
        array_values,
    ),
    "hand-made store": (
        "store.json",
        store,
        lambda path: read_description(path.parent).to_json(),
    ),
    "hand-made marks": (
        "marks.csv",
        lambda path: path.write_text(
            "sample_id,mark,label\n"
            + "".join(f'{each},relabel,"a, b"\n{each}0,keep,\n' for each in IDS[:20])
        ),
        mark_values,
    ),
    "parquet of marks": (
        "marks.parquet",
        lambda path: pq.write_table(table(mark=["keep", "drop", None] * (ROWS // 3)), path),
        mark_values,
    ),
    "Label Studio": ("project.json", json_writer(TASKS), mark_values),
    "FiftyOne": ("samples.json", json_writer({"samples": CLASSIFIED}), mark_values),
    "FiftyOne labels": (
        "labels.json",
        json_writer({"classes": ["0", "1", "2"], "labels": ATTRIBUTED}),
        mark_values,
    ),
    "CVAT": (
        "annotations.xml",
        lambda path: path.write_text(f"<annotations>{XML}</annotations>"),
        mark_values,
    ),
    "CVAT archive": ("annotations.zip", zipped, mark_values),
    "csv table": (
        "table.csv",
        lambda path: pyarrow.csv.write_csv(table(), path),
        column_values,
    ),
    "jsonl table": (
        "table.jsonl",
        lambda path: path.write_text(
            "".join(f"{json.dumps(row)}\n" for row in table().to_pylist())
        ),
        column_values,
    ),
    "parquet table": ("table.parquet", lambda path: pq.write_table(table(), path), column_values),
    "csv dataset": (
        "images.csv",
        lambda path: pyarrow.csv.write_csv(table(label=NAMES[LABELS], path=IDS), path),
        dataset_values,
    ),
    "parquet dataset": (
        "images.parquet",
        lambda path: pq.write_table(
            pa.table({"image": [bytes(50)] * ROWS, "label": NAMES[LABELS]}), path
        ),
        dataset_values,
    ),
    "predictions of others": (
        "test.npz",
        lambda path: np.savez(path, sample_ids=IDS, logits=FEATURES, targets=LABELS),
        lambda path: read_prediction_columns(path).to_pydict(),
    ),
    "predictions of a run": (
        "test.npz",
        lambda path: np.savez_compressed(path, sample_ids=IDS, logits=FEATURES, targets=LABELS),
        lambda path: [*map(str, vars(read_predictions(path)).values())],
    ),
    "recipe": ("recipe.toml", recipe, read_recipe),
    "history": (
        "history.jsonl",
        lambda path: run_folder.write_history(path, [{"epoch": 1, "nll": 0.5}] * 20),
        run_folder.read_history,
    ),
    "weights": (
        "network.safetensors",
        lambda path: safetensors.torch.save_file({"a": torch.ones(9, 3), "b": torch.ones(4)}, path),
        read_weights,
    ),
    "weights of PyTorch": (
        "network.pt",
        lambda path: torch.save({"a": torch.ones(9, 3), "b": torch.ones(4)}, path),
        read_weights,
    ),
}
