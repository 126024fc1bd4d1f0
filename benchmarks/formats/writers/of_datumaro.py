"""Datumaro: one object model, exported to each of its formats."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datumaro.components.annotation import Bbox, Label, Polygon, RleMask, RotatedBbox
from datumaro.components.dataset import Dataset
from datumaro.components.dataset_base import DatasetItem
from datumaro.components.media import Image
from pycocotools import mask

from benchmarks.formats.case import BOXES, CLASSES, REFUSED, Case, Reading
from benchmarks.formats.scenes import CATEGORIES, Scene, Thing, by_split, draw

WRITER = "datumaro"


def _annotation(thing: Thing, number: int) -> Any:  # noqa: ANN401
    label = CATEGORIES.index(thing.label)
    left, top, right, bottom = thing.sides
    width, height = right - left, bottom - top
    if thing.degrees:
        middle = (left + right) / 2, (top + bottom) / 2
        return RotatedBbox(*middle, width, height, thing.degrees, label=label, group=number)
    if thing.corners:
        return Polygon([x for point in thing.corners for x in point], label=label, group=number)
    return Bbox(left, top, width, height, label=label, group=number)


def _crowd(thing: Thing, scene: Scene, number: int) -> Any:  # noqa: ANN401
    width, height = scene.size
    pixels = np.zeros((height, width), np.uint8, order="F")
    left, top, right, bottom = map(int, thing.sides)
    pixels[top:bottom, left:right] = 1
    label, runs = CATEGORIES.index(thing.label), mask.encode(pixels)
    return RleMask(runs, label=label, group=number, attributes={"is_crowd": True})


def _items(
    folder: Path, scenes: Sequence[Scene], *, classes: bool = False, masks: bool = False
) -> list[DatasetItem]:
    items = []
    for scene in scenes:
        path = folder / scene.split / scene.file
        draw(path, scene)
        annotations = [
            _crowd(thing, scene, number) if thing.crowd or masks else _annotation(thing, number)
            for number, thing in enumerate(scene.things, 1)
        ]
        if classes:
            annotations = [Label(CATEGORIES.index(each.label)) for each in scene.things[:1]]
        media = Image.from_file(path=str(path))
        items.append(
            DatasetItem(id=scene.name, subset=scene.split, media=media, annotations=annotations)
        )
    return items


def _write(form: str, options: dict[str, Any], folder: Path, scenes: Sequence[Scene]) -> None:
    classes = form.startswith("imagenet")
    if form == "yolo_ultralytics" and len(by_split(scenes)) == 1:
        scenes = [*scenes, Scene("unused", split="val")]  # it writes no dataset without one
    masks = form in {"camvid", "cityscapes"}
    items = _items(folder.parent / "source", scenes, classes=classes, masks=masks)
    dataset = Dataset.from_iterable(items, categories=list(CATEGORIES))
    dataset.export(str(folder), form, save_media=True, **options)


def _read(form: str, folder: Path, scenes: Sequence[Scene]) -> Reading:
    dataset = Dataset.import_from(str(folder), form)
    names = [each.name for each in dataset.categories()[next(iter(dataset.categories()))].items]
    rows = [
        (_split(item), item.id.rpartition(":")[2], names[each.label], _sides(each))
        for item in dataset
        for each in _objects(item)
    ]
    images = sum(_split(item) in by_split(scenes) for item in dataset)
    return Reading(rows, names, images)


def _split(item: Any) -> str:  # noqa: ANN401
    return "train" if item.subset == "default" else str(item.subset)


def _objects(item: Any) -> list[Any]:  # noqa: ANN401
    """What has a class; of an outline and the box around it, which have one group, the outline."""
    found: dict[object, Any] = {}
    for place, each in enumerate(item.annotations):
        if getattr(each, "label", None) is not None:
            key = each.group or f"alone {place}"
            if not isinstance(found.get(key), Polygon | RleMask):
                found[key] = each
    return list(found.values())


def _sides(each: Any) -> tuple[float, ...]:  # noqa: ANN401
    if isinstance(each, Label):
        return ()
    left, top, width, height = map(float, each.get_bbox())
    return left, top, left + width, top + height


def _case(
    form: str,
    situation: str,
    name: str,
    kind: str = BOXES,
    **more: Any,  # noqa: ANN401
) -> Case:
    options, read_as = more.pop("options", {}), more.pop("read_as", form)
    write = partial(_write, form, options)
    read = None if read_as is None else partial(_read, read_as)
    return Case(WRITER, name, situation, write, read, kind, **more)


_TWO = {"train": "train", "val": "val"}
_ONE_BASED = {"coordinate_mode": "voc-one-based"}
_OTHERS = (
    ("datumaro", "Datumaro JSON", "Datumaro"),
    ("kitti_detection", "KITTI", "KITTI"),
    ("camvid", "CamVid", "CamVid"),
    ("dota", "DOTA", "DOTA"),
    ("label_me", "LabelMe XML", "LabelMe"),
    ("open_images", "Open Images", "Open Images"),
    ("wider_face", "WIDER Face", "WIDER"),
    ("cityscapes", "Cityscapes", "Cityscapes"),
)

CASES = (
    *(
        _case("coco_instances", situation, "COCO", read_as="coco_instances")
        for situation in (
            *("plain", "empty image", "names with blanks, dots and umlauts", "sub-folders"),
            *("fractions of pixels", "at the borders", "outlines", "crowd", "turned box"),
            "turned photograph",
        )
    ),
    _case("coco_instances", "same name in two splits", "COCO", splits=_TWO),
    *(
        _case("voc_detection", situation, "Pascal VOC")
        for situation in (*("plain", "empty image", "fractions of pixels", "at the borders"),)
    ),
    *(
        _case("voc_detection", situation, "Pascal VOC", splits={"train": "train"})
        for situation in ("names with blanks, dots and umlauts", "sub-folders")
    ),
    _case("voc_detection", "plain", "Pascal VOC counted from 1", options=_ONE_BASED),
    _case("voc_detection", "fractions of pixels", "Pascal VOC counted from 1", options=_ONE_BASED),
    _case("voc_detection", "same name in two splits", "Pascal VOC", splits=_TWO),
    *(
        _case("yolo", situation, "YOLO of Darknet", read_as="yolo")
        for situation in ("plain", "empty image", "names with blanks, dots and umlauts")
    ),
    _case("yolo", "same name in two splits", "YOLO of Darknet", splits=_TWO),
    *(
        _case("yolo_ultralytics", situation, "YOLO", read_as="yolo", splits={"train": "train"})
        for situation in ("plain", "empty image", "sub-folders", "at the borders")
    ),
    _case("yolo_ultralytics", "same name in two splits", "YOLO", read_as="yolo", splits=_TWO),
    *(
        _case("cvat", situation, "CVAT for images")
        for situation in (
            *("plain", "empty image", "names with blanks, dots and umlauts", "sub-folders"),
            *("fractions of pixels", "outlines", "turned box"),
        )
    ),
    _case("cvat", "same name in two splits", "CVAT for images", splits=_TWO),
    _case("imagenet", "plain", "folders of classes", CLASSES, splits={"train": None}),
    _case(
        "imagenet_with_subset_dirs",
        "same name in two splits",
        "folders of classes",
        CLASSES,
        splits=_TWO,
    ),
    *(_case(form, "plain", name, REFUSED, layout=layout) for form, name, layout in _OTHERS),
    _case("dota", "turned box", "DOTA", REFUSED, layout="DOTA"),
    _case("mot_seq_gt", "plain", "MOT", REFUSED, layout="MOT", read_as=None),
)
