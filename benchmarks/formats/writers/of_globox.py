"""globox: converts boxes between formats; the images stay where they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from globox import Annotation, AnnotationSet, BoundingBox

from benchmarks.formats.case import REFUSED, Case, Reading
from benchmarks.formats.scenes import CATEGORIES, Scene, draw_all

WRITER = "globox"


def _boxes(scenes: Sequence[Scene]) -> Any:  # noqa: ANN401
    return AnnotationSet(
        [
            Annotation(
                scene.file,
                scene.size,
                [
                    BoundingBox.create(label=thing.label, coords=thing.sides)
                    for thing in scene.things
                ],
            )
            for scene in scenes
        ]
    )


def _coco(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    _boxes(scenes).save_coco(folder / "annotations.json", auto_ids=True)


def _yolo(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    (folder / "labels").mkdir()
    numbers = {name: number for number, name in enumerate(CATEGORIES)}
    _boxes(scenes).save_yolo_v5(folder / "labels", label_to_id=numbers)
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in CATEGORIES))


def _voc(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "JPEGImages", scenes)
    (folder / "Annotations").mkdir()
    _boxes(scenes).save_pascal_voc(folder / "Annotations")


def _cvat(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    _boxes(scenes).save_cvat(folder / "annotations.xml")


def _labelme(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder, scenes)
    _boxes(scenes).save_labelme(folder)


def _open_images(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    _boxes(scenes).save_openimage(folder / "annotations.csv")


def _via(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    _boxes(scenes).save_via_json(folder / "via.json", image_folder=folder / "images")


def _reading(found: Any, classes: Sequence[str] = ()) -> Reading:  # noqa: ANN401
    rows = [
        ("train", str(each.image_id), str(box.label), tuple(map(float, box.ltrb)))
        for each in found
        for box in each.boxes
    ]
    rows = [
        (split, image, classes[int(label)] if classes else label, sides)
        for split, image, label, sides in rows
    ]
    return Reading(rows, classes or sorted({row[2] for row in rows}), len(found))


def _read_coco(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    return _reading(AnnotationSet.from_coco(folder / "annotations.json"))


def _read_yolo(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    found = AnnotationSet.from_yolo_v5(
        folder / "labels", image_folder=folder / "images", image_extension=".png"
    )
    return _reading(found, CATEGORIES)


def _read_voc(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    return _reading(AnnotationSet.from_pascal_voc(folder / "Annotations"))


def _read_cvat(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    return _reading(AnnotationSet.from_cvat(folder / "annotations.xml"))


def _read_labelme(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    return _reading(AnnotationSet.from_labelme(folder))


_SITUATIONS = ("plain", "empty image", "fractions of pixels", "at the borders")

CASES = (
    *(Case(WRITER, "COCO", each, _coco, _read_coco) for each in _SITUATIONS),
    *(Case(WRITER, "YOLO", each, _yolo, _read_yolo) for each in _SITUATIONS),
    Case(WRITER, "YOLO", "names with blanks, dots and umlauts", _yolo, _read_yolo),
    *(Case(WRITER, "Pascal VOC", each, _voc, _read_voc) for each in _SITUATIONS),
    *(Case(WRITER, "CVAT for images", each, _cvat, _read_cvat) for each in _SITUATIONS),
    *(Case(WRITER, "LabelMe", each, _labelme, _read_labelme) for each in _SITUATIONS),
    *(Case(WRITER, "Open Images", each, _open_images) for each in _SITUATIONS),
    Case(WRITER, "VIA", "plain", _via, kind=REFUSED, layout="VIA"),
)
