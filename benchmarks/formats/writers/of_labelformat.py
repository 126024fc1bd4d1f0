"""labelformat: converts boxes between formats; the images stay where they are."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from labelformat.formats import (
    COCOObjectDetectionInput,
    COCOObjectDetectionOutput,
    CVATObjectDetectionInput,
    CVATObjectDetectionOutput,
    KittiObjectDetectionInput,
    KittiObjectDetectionOutput,
    LightlyObjectDetectionOutput,
    PascalVOCObjectDetectionInput,
    PascalVOCObjectDetectionOutput,
    YOLOv8ObjectDetectionInput,
    YOLOv8ObjectDetectionOutput,
)
from labelformat.model.bounding_box import BoundingBox, BoundingBoxFormat
from labelformat.model.category import Category
from labelformat.model.image import Image
from labelformat.model.object_detection import (
    ImageObjectDetection,
    ObjectDetectionInput,
    SingleObjectDetection,
)

from benchmarks.formats.case import REFUSED, Case, Reading
from benchmarks.formats.scenes import CATEGORIES, Scene, draw_all

WRITER = "labelformat"


class _Scenes(ObjectDetectionInput):  # type: ignore[misc]
    """Scenes as its converters take them."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self._scenes = scenes

    @staticmethod
    def add_cli_arguments(parser: Any) -> None:  # noqa: ANN401
        """Has no options."""

    def get_categories(self) -> Iterable[Any]:
        """The classes, counted from 0."""
        return [Category(id=number, name=name) for number, name in enumerate(CATEGORIES)]

    def get_images(self) -> Iterable[Any]:
        """The images, counted from 0."""
        return [
            Image(id=number, filename=scene.file, width=scene.size[0], height=scene.size[1])
            for number, scene in enumerate(self._scenes)
        ]

    def get_labels(self) -> Iterable[Any]:
        """The boxes of each image."""
        for image, scene in zip(self.get_images(), self._scenes, strict=True):
            objects = [
                SingleObjectDetection(
                    category=Category(id=CATEGORIES.index(thing.label), name=thing.label),
                    box=BoundingBox.from_format(list(thing.sides), BoundingBoxFormat.XYXY),
                )
                for thing in scene.things
            ]
            yield ImageObjectDetection(image=image, objects=objects)


def _coco(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    COCOObjectDetectionOutput(folder / "labels.json").save(_Scenes(scenes))


def _yolo(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    YOLOv8ObjectDetectionOutput(folder / "data.yaml", "train").save(_Scenes(scenes))


def _voc(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "JPEGImages", scenes)
    PascalVOCObjectDetectionOutput(folder / "Annotations").save(_Scenes(scenes))


def _cvat(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    CVATObjectDetectionOutput(folder).save(_Scenes(scenes))


def _kitti(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    KittiObjectDetectionOutput(folder / "labels").save(_Scenes(scenes))


def _lightly(folder: Path, scenes: Sequence[Scene]) -> None:
    draw_all(folder / "images", scenes)
    LightlyObjectDetectionOutput(folder / "labels").save(_Scenes(scenes))


def _reading(found: Any) -> Reading:  # noqa: ANN401
    labels = list(found.get_labels())
    rows = [
        (
            "train",
            each.image.filename,
            thing.category.name,
            tuple(map(float, thing.box.to_format(BoundingBoxFormat.XYXY))),
        )
        for each in labels
        for thing in each.objects
    ]
    return Reading(rows, [each.name for each in found.get_categories()], len(labels))


def _read(form: str, folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    names = ",".join(CATEGORIES)
    readers = {
        "coco": partial(COCOObjectDetectionInput, folder / "labels.json"),
        "yolo": partial(YOLOv8ObjectDetectionInput, folder / "data.yaml", "train"),
        "voc": partial(PascalVOCObjectDetectionInput, folder / "Annotations", names),
        "cvat": partial(CVATObjectDetectionInput, folder / "annotations.xml"),
        "kitti": partial(KittiObjectDetectionInput, folder / "labels", names),
    }
    return _reading(readers[form]())


_SITUATIONS = ("plain", "empty image", "fractions of pixels", "at the borders")
_NAMES = "names with blanks, dots and umlauts"

CASES = (
    *(
        Case(WRITER, "COCO", each, _coco, partial(_read, "coco"))
        for each in (*_SITUATIONS, "sub-folders", _NAMES)
    ),
    *(
        Case(WRITER, "YOLO", each, _yolo, partial(_read, "yolo"))
        for each in (*_SITUATIONS, "sub-folders", _NAMES, "turned photograph")
    ),
    *(
        Case(WRITER, "Pascal VOC", each, _voc, partial(_read, "voc"))
        for each in (*_SITUATIONS, _NAMES)
    ),
    *(
        Case(WRITER, "CVAT for images", each, _cvat, partial(_read, "cvat"))
        for each in (*_SITUATIONS, "sub-folders")
    ),
    Case(WRITER, "KITTI", "plain", _kitti, partial(_read, "kitti"), REFUSED, layout="KITTI"),
    Case(WRITER, "Lightly", "plain", _lightly, kind=REFUSED, layout="Lightly"),
)
