"""supervision: a dataset of detections, saved as COCO, YOLO, Pascal VOC and others."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import supervision as sv

from benchmarks.formats.case import CLASSES, Case, Reading
from benchmarks.formats.scenes import CATEGORIES, Scene, draw_all

WRITER = "supervision"


def _detections(scene: Scene, *, turned: bool) -> Any:  # noqa: ANN401
    if not scene.things:
        return sv.Detections.empty()
    outlines = np.array([thing.outline[:4] for thing in scene.things]) if turned else None
    sides = [
        (*np.min(thing.outline, axis=0), *np.max(thing.outline, axis=0)) for thing in scene.things
    ]
    found = sv.Detections(
        xyxy=np.array(sides, np.float64),
        class_id=np.array([CATEGORIES.index(thing.label) for thing in scene.things]),
    )
    if outlines is not None:
        found.data["xyxyxyxy"] = outlines
    return found


def _dataset(folder: Path, scenes: Sequence[Scene], *, turned: bool = False) -> Any:  # noqa: ANN401
    paths = list(map(str, draw_all(folder.parent / "source", scenes)))
    found = [_detections(scene, turned=turned) for scene in scenes]
    return sv.DetectionDataset(list(CATEGORIES), paths, dict(zip(paths, found, strict=True)))


def _coco(folder: Path, scenes: Sequence[Scene]) -> None:
    _dataset(folder, scenes).as_coco(
        str(folder / "train"), str(folder / "train" / "_annotations.coco.json")
    )


def _yolo(folder: Path, scenes: Sequence[Scene], *, turned: bool = False) -> None:
    _dataset(folder, scenes, turned=turned).as_yolo(
        str(folder / "images"), str(folder / "labels"), str(folder / "data.yaml"), is_obb=turned
    )


def _voc(folder: Path, scenes: Sequence[Scene]) -> None:
    _dataset(folder, scenes).as_pascal_voc(str(folder / "JPEGImages"), str(folder / "Annotations"))


def _create_ml(folder: Path, scenes: Sequence[Scene]) -> None:
    _dataset(folder, scenes).as_createml(str(folder), str(folder / "_annotations.createml.json"))


def _labelme(folder: Path, scenes: Sequence[Scene]) -> None:
    _dataset(folder, scenes).as_labelme(str(folder), str(folder))


def _folders(folder: Path, scenes: Sequence[Scene]) -> None:
    paths = list(map(str, draw_all(folder.parent / "source", scenes)))
    labels = [np.array([CATEGORIES.index(scene.things[0].label)]) for scene in scenes]
    found = {
        path: sv.Classifications(class_id=label) for path, label in zip(paths, labels, strict=True)
    }
    sv.ClassificationDataset(list(CATEGORIES), paths, found).as_folder_structure(str(folder))


def _reading(dataset: Any) -> Reading:  # noqa: ANN401
    rows = [
        ("train", Path(path).name, dataset.classes[label], tuple(map(float, sides)))
        for path, found in dataset.annotations.items()
        for label, sides in zip(found.class_id, found.xyxy, strict=True)
    ]
    return Reading(rows, dataset.classes, len(dataset))


def _read_coco(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    place = folder / "train"
    return _reading(
        sv.DetectionDataset.from_coco(str(place), str(place / "_annotations.coco.json"))
    )


def _read_yolo(folder: Path, scenes: Sequence[Scene], *, turned: bool = False) -> Reading:  # noqa: ARG001
    places = (str(folder / "images"), str(folder / "labels"), str(folder / "data.yaml"))
    return _reading(sv.DetectionDataset.from_yolo(*places, is_obb=turned))


def _read_voc(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    places = (str(folder / "JPEGImages"), str(folder / "Annotations"))
    return _reading(sv.DetectionDataset.from_pascal_voc(*places))


def _read_folders(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    dataset = sv.ClassificationDataset.from_folder_structure(str(folder))
    rows: list[tuple[str, str, str, tuple[float, ...]]] = [
        ("train", Path(path).name, dataset.classes[found.class_id[0]], ())
        for path, found in dataset.annotations.items()
    ]
    return Reading(rows, dataset.classes, len(dataset))


_SITUATIONS = (
    *("plain", "empty image", "names with blanks, dots and umlauts", "fractions of pixels"),
    *("at the borders", "turned photograph"),
)

CASES = (
    *(Case(WRITER, "COCO", each, _coco, _read_coco) for each in _SITUATIONS),
    *(Case(WRITER, "YOLO", each, _yolo, _read_yolo) for each in _SITUATIONS),
    *(Case(WRITER, "Pascal VOC", each, _voc, _read_voc) for each in _SITUATIONS),
    Case(
        WRITER,
        "YOLO OBB",
        "turned box",
        partial(_yolo, turned=True),
        partial(_read_yolo, turned=True),
    ),
    Case(WRITER, "folders of classes", "plain", _folders, _read_folders, CLASSES),
    Case(WRITER, "CreateML", "plain", _create_ml),
    Case(WRITER, "LabelMe", "plain", _labelme),
)
