"""Hugging Face's `datasets`: tables with images, and folders of images with metadata."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value, load_dataset
from datasets import load_from_disk as load

from benchmarks.formats.case import CLASSES, REFUSED, Case, Reading
from benchmarks.formats.scenes import CATEGORIES, Scene, by_split, draw_all

WRITER = "datasets"
_FEATURES = Features({"image": Image(), "label": ClassLabel(names=list(CATEGORIES))})


def _table(folder: Path, scenes: Sequence[Scene]) -> Any:  # noqa: ANN401
    paths = list(map(str, draw_all(folder.parent / "source" / scenes[0].split, scenes)))
    labels = [CATEGORIES.index(scene.things[0].label) for scene in scenes]
    return Dataset.from_dict({"image": paths, "label": labels}, features=_FEATURES)


def _parquet(folder: Path, scenes: Sequence[Scene]) -> None:
    for split, chosen in by_split(scenes).items():
        _table(folder, chosen).to_parquet(folder / f"{split}-00000-of-00001.parquet")


def _objects(folder: Path, scenes: Sequence[Scene]) -> None:
    paths = list(map(str, draw_all(folder.parent / "source", scenes)))
    objects = [
        {
            "bbox": [
                [left, top, right - left, bottom - top]
                for left, top, right, bottom in (thing.sides for thing in scene.things)
            ],
            "category": [CATEGORIES.index(thing.label) for thing in scene.things],
        }
        for scene in scenes
    ]
    table = Dataset.from_dict({"image": paths, "objects": objects}).cast_column("image", Image())
    table.to_parquet(folder / "train-00000-of-00001.parquet")


def _disk(folder: Path, scenes: Sequence[Scene]) -> None:
    splits = by_split(scenes)
    if len(splits) == 1:
        _table(folder, scenes).save_to_disk(folder)
        return
    tables = {split: _table(folder, chosen) for split, chosen in splits.items()}
    DatasetDict(tables).save_to_disk(folder)


def _jsonl(folder: Path, scenes: Sequence[Scene]) -> None:
    """The folder that its loader `imagefolder` reads: images beside `metadata.jsonl`."""
    draw_all(folder, scenes)
    table = Dataset.from_dict(
        {
            "file_name": [scene.file for scene in scenes],
            "label": [scene.things[0].label for scene in scenes],
        },
        features=Features({"file_name": Value("string"), "label": Value("string")}),
    )
    table.to_json(folder / "metadata.jsonl", force_ascii=False)


def _object_metadata(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "train", scenes)
    lines = [
        json.dumps(
            {
                "file_name": scene.file,
                "objects": {
                    "bbox": [list(thing.sides) for thing in scene.things],
                    "categories": [CATEGORIES.index(thing.label) for thing in scene.things],
                },
            }
        )
        for scene in scenes
    ]
    (folder / "train" / "metadata.jsonl").write_text("\n".join(lines) + "\n")


def _rows(table: Any, split: str, scenes: Sequence[Scene]) -> Reading:  # noqa: ANN401
    """Rows have no names; they are in the order of the scenes."""
    label = table.features["label"]
    names = getattr(label, "names", None)
    values = table["label"]
    found = [names[value] if names else value for value in values]
    rows: list[tuple[str, str, str, tuple[float, ...]]] = [
        (split, scene.file, name, ()) for scene, name in zip(scenes, found, strict=False)
    ]
    return Reading(rows, list(names or sorted(set(found))), len(table))


def _joined(readings: Sequence[Reading]) -> Reading:
    rows = [row for reading in readings for row in reading.rows]
    return Reading(rows, readings[0].classes, sum(reading.images for reading in readings))


def _read_parquet(folder: Path, scenes: Sequence[Scene]) -> Reading:
    cache = str(folder.parent / "cache")
    found = load_dataset(str(folder), cache_dir=cache)
    return _joined(
        [
            _rows(found[{"val": "validation"}.get(split, split)], split, chosen)
            for split, chosen in by_split(scenes).items()
        ]
    )


def _read_disk(folder: Path, scenes: Sequence[Scene]) -> Reading:
    found, splits = load(folder), by_split(scenes)
    if len(splits) == 1:
        return _rows(found, "train", scenes)
    return _joined([_rows(found[split], split, chosen) for split, chosen in splits.items()])


def _read_jsonl(folder: Path, scenes: Sequence[Scene]) -> Reading:
    cache = str(folder.parent / "cache")
    found = load_dataset("imagefolder", data_dir=str(folder), cache_dir=cache)["train"]
    paths = [each["path"] for each in found.cast_column("image", Image(decode=False))["image"]]
    names = [Path(path).name for path in paths]
    by_name = {Path(scene.file).name: scene for scene in scenes}
    return _rows(found, "train", [by_name[name] for name in names])


_TWO: dict[str, str | None] = {"train": "train", "val": "val"}
_SPLITS = "same name in two splits"

CASES = (
    Case(WRITER, "Parquet", "plain", _parquet, _read_parquet, CLASSES, "{split}-*.parquet"),
    Case(
        WRITER,
        "Parquet",
        _SPLITS,
        _parquet,
        _read_parquet,
        CLASSES,
        "{split}-*.parquet",
        {"train": None, "val": None},
    ),
    Case(WRITER, "save_to_disk", "plain", _disk, _read_disk, CLASSES),
    Case(WRITER, "save_to_disk", _SPLITS, _disk, _read_disk, CLASSES, splits=_TWO),
    Case(WRITER, "metadata.jsonl", "plain", _jsonl, _read_jsonl, CLASSES, "metadata.jsonl"),
    Case(
        WRITER,
        "metadata.jsonl",
        "names with blanks, dots and umlauts",
        _jsonl,
        _read_jsonl,
        CLASSES,
        "metadata.jsonl",
    ),
    Case(
        WRITER,
        "metadata.jsonl",
        "turned photograph",
        _jsonl,
        _read_jsonl,
        CLASSES,
        "metadata.jsonl",
    ),
    Case(WRITER, "Parquet with objects", "plain", _objects, kind=REFUSED, layout="objects"),
    Case(
        WRITER,
        "metadata.jsonl with objects",
        "plain",
        _object_metadata,
        kind=REFUSED,
        layout="objects",
    ),
)
