"""Images with coloured objects, and their boxes in the formats that are read."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

CATEGORIES = ("apple", "leaf", "plum")
COLOURS = {"apple": (230, 20, 20), "leaf": (20, 200, 30), "plum": (110, 20, 160)}
WIDTH, HEIGHT = 200, 100
EXTRA = {"segmentation": [[1.5, 2.25, 3, 4e0, 5, 6]], "iscrowd": 0, "score": 1.50, "né": "é"}
"""What annotations have besides, in ways that a writer of JSON would change."""

Box = tuple[str, int, int, int, int]
"""Category, left, top, width and height."""


@dataclass(frozen=True)
class Scene:
    """An image and its boxes."""

    name: str
    boxes: Sequence[Box]


SCENES = (
    Scene("a", [("apple", 10, 20, 40, 40), ("leaf", 120, 30, 40, 50)]),
    Scene("b", [("plum", 60, 10, 50, 50), ("apple", 0, 60, 30, 40), ("leaf", 150, 50, 40, 40)]),
    Scene("c", [("leaf", 5, 5, 60, 30), ("plum", 100, 40, 30, 50)]),
    Scene("empty", []),
)


def many_scenes(number: int, seed: int = 0) -> list[Scene]:
    """Scenes with three objects each, of categories that are drawn at random."""
    random = np.random.default_rng(seed)
    return [
        Scene(
            f"scene{each:03}",
            [
                (str(random.choice(CATEGORIES)), left + 2, int(random.integers(5, 40)), 48, 48)
                for left in (5, 70, 135)
            ],
        )
        for each in range(number)
    ]


def write_image(path: Path, scene: Scene) -> None:
    """Draws grey noise with a square of its colour for each object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(scene.name)).integers(90, 130, (HEIGHT, WIDTH, 1))
    image = Image.fromarray(np.repeat(noise, 3, axis=2).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for category, left, top, width, height in scene.boxes:
        draw.rectangle((left, top, left + width - 1, top + height - 1), COLOURS[category])
    image.save(path)


def write_coco(folder: Path, scenes: Sequence[Scene] = SCENES, split: str = "val") -> Path:
    """Writes `annotations/instances_SPLIT.json` and the images in a folder of the split."""
    annotations: list[dict[str, Any]] = []
    for number, scene in enumerate(scenes):
        write_image(folder / split / f"{scene.name}.png", scene)
        for category, *box in scene.boxes:
            annotation = {
                "id": 100 + len(annotations),
                "image_id": number,
                "category_id": 5 * CATEGORIES.index(category) + 3,
                "bbox": box,
            }
            annotations.append(annotation | EXTRA)
    images = [
        {"id": number, "file_name": f"{scene.name}.png", "width": WIDTH, "height": HEIGHT}
        for number, scene in enumerate(scenes)
    ]
    categories = [
        {"id": 5 * number + 3, "name": name, "supercategory": "plant"}
        for number, name in enumerate(CATEGORIES)
    ]
    content = {"info": {"year": 2026}, "images": images, "annotations": annotations}
    path = folder / "annotations" / f"instances_{split}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content | {"categories": categories}, indent=1, ensure_ascii=False))
    return folder


def write_yolo(
    folder: Path, scenes: Sequence[Scene] = SCENES, splits: Sequence[str] = ("train",)
) -> Path:
    """Writes `data.yaml`, and `images` and `labels` with a folder for each split."""
    for split in splits:
        for scene in scenes:
            write_image(folder / "images" / split / f"{scene.name}.png", scene)
            lines = [
                f"{CATEGORIES.index(category)} {(left + width / 2) / WIDTH:.6f} "
                f"{(top + height / 2) / HEIGHT:.6f} {width / WIDTH:.6f} {height / HEIGHT:.6f}\n"
                for category, left, top, width, height in scene.boxes
            ]
            text = folder / "labels" / split / f"{scene.name}.txt"
            text.parent.mkdir(parents=True, exist_ok=True)
            text.write_text("".join(lines))
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CATEGORIES))
    folders = "".join(f"{split}: images/{split}\n" for split in splits)
    (folder / "data.yaml").write_text(f"# fruit\npath: ../fruit\n{folders}names:\n{names}")
    return folder


def write_voc(folder: Path, scenes: Sequence[Scene] = SCENES) -> Path:
    """Writes `JPEGImages`, `Annotations`, and a list of the first two images as `train`."""
    (folder / "Annotations").mkdir(parents=True)
    for scene in scenes:
        write_image(folder / "JPEGImages" / f"{scene.name}.png", scene)
        objects = "".join(map(_voc_object, scene.boxes))
        (folder / "Annotations" / f"{scene.name}.xml").write_text(
            f"<annotation>\n\t<filename>{scene.name}.png</filename>\n"
            f"\t<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>\n"
            f"{objects}</annotation>\n"
        )
    lists = folder / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("".join(f"{scene.name}\n" for scene in scenes[:2]))
    (lists / "apple_train.txt").write_text("a 1\n")
    return folder


def _voc_object(box: Box) -> str:
    category, left, top, width, height = box
    return (
        f"\t<object>\n\t\t<name>{category}</name>\n\t\t<pose>Left</pose>\n"
        f"\t\t<bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin>"
        f"<xmax>{left + width}</xmax><ymax>{top + height}</ymax></bndbox>\n"
        "\t\t<part><name>stem</name><bndbox><xmin>1</xmin></bndbox></part>\n\t</object>\n"
    )


def write_label_studio(folder: Path, scenes: Sequence[Scene] = SCENES) -> Path:
    """Writes an export whose images were uploaded, and the images as they were called before."""
    tasks, number = list[dict[str, Any]](), 100
    for task, scene in enumerate(scenes):
        write_image(folder / "images" / f"{scene.name}.png", scene)
        results = []
        for category, left, top, width, height in scene.boxes:
            sides = {"x": left / 2, "y": top, "width": width / 2, "height": height, "rotation": 0}
            result = {
                "original_width": WIDTH,
                "original_height": HEIGHT,
                "image_rotation": 0,
                "value": {**sides, "rectanglelabels": [category]},
                "id": str(number),
                "from_name": "label",
                "to_name": "image",
                "type": "rectanglelabels",
                **EXTRA,
            }
            results.append(result)
            number += 1
        annotation = {"id": task, "was_cancelled": False, "ground_truth": False, "result": results}
        annotation["updated_at"] = "2026-01-01T00:00:00.000000Z"
        data = {"image": f"/data/upload/1/0a1b2c3d-{scene.name}.png"}
        tasks.append({"id": task, "annotations": [annotation], "data": data, "né": "é"})
    (folder / "project-1.json").write_text(json.dumps(tasks, indent=1, ensure_ascii=False))
    return folder


def write_cvat(folder: Path, scenes: Sequence[Scene] = SCENES) -> Path:
    """Writes `annotations.xml` and the images in `images`."""
    images = ""
    for number, scene in enumerate(scenes):
        write_image(folder / "images" / f"{scene.name}.png", scene)
        boxes = "".join(
            f'    <box label="{category}" source="manual" occluded="0" xtl="{left}.00" '
            f'ytl="{top}.00" xbr="{left + width}.00" ybr="{top + height}.00" z_order="0">\n'
            '      <attribute name="ripe">yes</attribute>\n    </box>\n'
            for category, left, top, width, height in scene.boxes
        )
        images += (
            f'  <image id="{number}" name="{scene.name}.png" width="{WIDTH}" height="{HEIGHT}">\n'
            f"{boxes}  </image>\n"
        )
    labels = "".join(
        f"        <label>\n          <name>{name}</name>\n        </label>\n" for name in CATEGORIES
    )
    (folder / "annotations.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n'
        f"  <meta>\n    <task>\n      <labels>\n{labels}      </labels>\n    </task>\n  </meta>\n"
        f"{images}</annotations>\n"
    )
    return folder


def with_wrong_regions(path: Path) -> dict[str, str]:
    """Adds regions that are no boxes to an export of Label Studio; the reasons by their ids."""
    content = json.loads(path.read_text())
    results = content[0]["annotations"][0]["result"]
    first = results[0]
    values = {
        "its box has no area": {"width": 0},
        "its box is not four numbers": {"x": "7"},
        "it is rotated by 30 degrees": {"rotation": 30},
        "it has no category": {"rectanglelabels": []},
        "it has 2 labels, and a box has one": {"rectanglelabels": ["apple", "plum"]},
    }
    added = [
        first | {"id": f"v{row}", "value": first["value"] | each}
        for row, each in enumerate(values.values())
    ]
    brush = "it is a region of the type brushlabels, and no box or polygon"
    added += [
        first | {"id": "turned", "image_rotation": 90},
        {"id": "brush", "type": "brushlabels", "value": {"brushlabels": ["apple"], "rle": []}},
        {"id": "bare", "type": "rectangle", "value": first["value"]},
        {"id": None, "type": "rectanglelabels", "value": first["value"]},
        first,
    ]
    results += added
    path.write_text(json.dumps(content))
    reasons = {f"v{row}": reason for row, reason in enumerate(values)} | {
        "turned": "its image was rotated by 90 degrees",
        "brush": brush,
        "bare": "it has no category",
        "#11": "it has no id",
        "100": "another box of the image has the same name",
    }
    return {f"images/a.png#{key}": reason for key, reason in reasons.items()}


def with_wrong_shapes(path: Path) -> dict[str, str]:
    """Adds shapes that are no boxes to an export of CVAT; the reasons by their ids."""
    box = '<box label="{}" xtl="{}" ytl="1" xbr="9" ybr="9" rotation="{}"/>'
    shapes = [
        *(box.format("apple", 9, 0), box.format("apple", "x", 0), box.format("apple", 1, "30.5")),
        *(box.format("", 1, 0), '<ellipse label="apple" cx="9" cy="9" rx="4" ry="4"/>'),
        '<polygon label="apple" points="1,2;3"/>',
    ]
    text = path.read_text().replace("  </image>", f"{''.join(shapes)}</image>", 1)
    path.write_text(text)
    reasons = (
        *("its box has no area", "its box is not four numbers", "it is rotated by 30.5 degrees"),
        *("it has no category", "it is a shape of the kind ellipse, and no box or polygon"),
        "its box is not four numbers",
    )
    return {f"images/a.png#{number}": reason for number, reason in enumerate(reasons, 3)}


WRITERS = {
    "coco": write_coco,
    "yolo": write_yolo,
    "voc": write_voc,
    "label-studio": write_label_studio,
    "cvat": write_cvat,
}
"""What writes a dataset of each format into a folder, and gives the folder."""


def image_ids(form: str) -> Mapping[str, str]:
    """Path of the image of each scene in a dataset of a format, as ids begin with it."""
    folder = {"coco": "", "yolo": "images/train/", "voc": "JPEGImages/"}.get(form, "images/")
    return {scene.name: f"{folder}{scene.name}.png" for scene in SCENES}


WITH_IDS = ("coco", "label-studio")
"""Formats whose boxes have ids, here from 100 on; others count those of an image from 1."""


def shown(data: bytes | str) -> str:
    """The category of the colour that most of a crop has."""
    assert isinstance(data, bytes), data
    with Image.open(io.BytesIO(data)) as image:
        pixels = np.asarray(image).astype(int)
    return max(COLOURS, key=lambda name: (abs(pixels - COLOURS[name]).max(axis=2) < 40).sum())
