"""pycocotools: what `loadRes` makes of detections, and runs of pixels from its masks."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask
from pycocotools.coco import COCO

from benchmarks.formats.case import Case, Reading
from benchmarks.formats.coco_text import coco_of
from benchmarks.formats.scenes import Scene, Thing, draw_all

WRITER = "pycocotools"


def _results(folder: Path, scenes: Sequence[Scene], *, masks: bool = False) -> None:
    draw_all(folder / "images", scenes)
    content = coco_of(scenes)
    images = folder.parent / "images.json"
    images.write_text(json.dumps(content))
    results = [
        {"image_id": each["image_id"], "category_id": each["category_id"], "score": 0.9}
        | ({"segmentation": _runs(thing, scene)} if masks else {"bbox": each["bbox"]})
        for each, (scene, thing) in zip(
            content["annotations"],
            [(scene, thing) for scene in scenes for thing in scene.things],
            strict=True,
        )
    ]
    made = COCO(str(images)).loadRes(results).dataset
    for each in made["annotations"]:
        each["bbox"] = list(map(float, each["bbox"]))
        each["area"] = float(each["area"])
    (folder / "annotations").mkdir()
    (folder / "annotations" / "instances_train.json").write_text(json.dumps(made))


def _runs(thing: Thing, scene: Scene) -> dict[str, Any]:
    width, height = scene.size
    pixels = np.zeros((height, width), np.uint8, order="F")
    left, top, right, bottom = map(round, thing.sides)
    pixels[top:bottom, left:right] = 1
    runs = mask.encode(pixels)
    return {"size": runs["size"], "counts": runs["counts"].decode()}


def _read(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    found = COCO(str(folder / "annotations" / "instances_train.json"))
    rows = []
    for each in found.loadAnns(found.getAnnIds()):
        left, top, width, height = each["bbox"]
        image = found.loadImgs(each["image_id"])[0]["file_name"]
        name = found.loadCats(each["category_id"])[0]["name"]
        rows.append(("train", image, name, (left, top, left + width, top + height)))
    classes = [each["name"] for each in found.loadCats(found.getCatIds())]
    return Reading(rows, classes, len(found.getImgIds()))


CASES = (
    *(
        Case(WRITER, "COCO of results", each, _results, _read)
        for each in ("plain", "empty image", "fractions of pixels", "at the borders")
    ),
    *(
        Case(WRITER, "COCO of masks", each, partial(_results, masks=True), _read)
        for each in ("plain", "at the borders")
    ),
)
