"""COCO as its specification says, for programs that convert from it."""

from collections.abc import Sequence
from typing import Any

from benchmarks.formats.scenes import CATEGORIES, Scene, Thing


def coco_of(scenes: Sequence[Scene]) -> dict[str, Any]:
    """Images, annotations and categories, all with ids from 1."""
    images = [
        {
            "id": number,
            "file_name": scene.file,
            "width": scene.size[0],
            "height": scene.size[1],
        }
        for number, scene in enumerate(scenes, 1)
    ]
    pairs = [(image, thing) for image, scene in enumerate(scenes, 1) for thing in scene.things]
    annotations = [
        _annotation(number, image, thing) for number, (image, thing) in enumerate(pairs, 1)
    ]
    categories = [{"id": number, "name": name} for number, name in enumerate(CATEGORIES, 1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def _annotation(number: int, image: int, thing: Thing) -> dict[str, Any]:
    left, top, right, bottom = thing.sides
    corners = [[each for point in thing.corners for each in point]] if thing.corners else []
    return {
        "id": number,
        "image_id": image,
        "category_id": CATEGORIES.index(thing.label) + 1,
        "bbox": [left, top, right - left, bottom - top],
        "area": (right - left) * (bottom - top),
        "segmentation": corners,
        "iscrowd": int(thing.crowd),
    }
