"""Ultralytics: what its converters make of COCO and DOTA, and its folders of classes.

`data.yaml` is written by hand, as its documentation asks for.
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml
from ultralytics.data.converter import convert_coco, convert_dota_to_yolo_obb
from ultralytics.data.split import split_classify_dataset
from ultralytics.data.utils import IMG_FORMATS, verify_image_label

from benchmarks.formats.case import CLASSES, Case, Reading
from benchmarks.formats.coco_text import coco_of
from benchmarks.formats.scenes import CATEGORIES, Scene, by_split, draw, draw_all

WRITER = "ultralytics"
_DOTA = ("plane", "ship", "storage-tank")
"""The only names that its converter knows; they stand for ours."""


def _config(folder: Path, splits: Sequence[str], names: Sequence[str]) -> None:
    places = {split: f"images/{split}" for split in splits}
    content = {"path": ".", **places, "names": dict(enumerate(names))}
    (folder / "data.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def _from_coco(folder: Path, scenes: Sequence[Scene], *, outlines: bool = False) -> None:
    source = folder.parent / "source"
    source.mkdir()
    for split, chosen in by_split(scenes).items():
        draw_all(folder / "images" / split, chosen)
        text = json.dumps(coco_of(chosen))
        (source / f"instances_{split}.json").write_text(text)
    convert_coco(str(source), str(folder.parent / "made"), use_segments=outlines, cls91to80=False)
    (folder.parent / "made" / "labels").rename(folder / "labels")
    _config(folder, list(by_split(scenes)), CATEGORIES)


def _from_dota(folder: Path, scenes: Sequence[Scene]) -> None:
    for split in ("train", "val"):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / f"{split}_original").mkdir(parents=True)
    for scene in scenes:
        draw(folder / "images" / "train" / scene.file, scene)
        lines = [
            " ".join(f"{each:.4f}" for point in thing.outline for each in point)
            + f" {_DOTA[CATEGORIES.index(thing.label)]} 0\n"
            for thing in scene.things
        ]
        (folder / "labels" / "train_original" / f"{scene.name}.txt").write_text("".join(lines))
    convert_dota_to_yolo_obb(str(folder))
    _config(folder, ["train", "val"], CATEGORIES)


def _classes(folder: Path, scenes: Sequence[Scene]) -> None:
    source = folder.parent / "source"
    for scene in scenes:
        draw(source / scene.things[0].label / scene.file, scene)
    made = split_classify_dataset(source, train_ratio=1.0)
    for place in made.iterdir():
        place.rename(folder / place.name)


def _read(folder: Path, scenes: Sequence[Scene]) -> Reading:
    config = yaml.safe_load((folder / "data.yaml").read_text())
    rows, images = [], 0
    for split in by_split(scenes):
        place = folder / config[split]
        for image in sorted(each for each in place.rglob("*") if each.suffix[1:] in IMG_FORMATS):
            text = folder / "labels" / image.relative_to(folder / "images").with_suffix(".txt")
            known = (str(image), str(text), "", False, len(config["names"]), 0, 0, False)
            file, labels, (height, width), *_ = verify_image_label(known)
            images += file is not None
            for label, x, y, across, down in labels if file is not None else ():
                sides = (
                    *((x - across / 2) * width, (y - down / 2) * height),
                    *((x + across / 2) * width, (y + down / 2) * height),
                )
                name = str(image.relative_to(place))
                rows.append((split, name, config["names"][int(label)], tuple(map(float, sides))))
    return Reading(rows, list(config["names"].values()), images)


_TWO: dict[str, str | None] = {"train": "train", "val": "val"}

CASES = (
    *(
        Case(WRITER, "YOLO", each, _from_coco, _read)
        for each in (
            *("plain", "empty image", "names with blanks, dots and umlauts", "sub-folders"),
            *("fractions of pixels", "at the borders", "crowd", "turned photograph"),
        )
    ),
    Case(WRITER, "YOLO", "same name in two splits", _from_coco, _read, splits=_TWO),
    Case(WRITER, "YOLO outlines", "outlines", partial(_from_coco, outlines=True), _read),
    Case(WRITER, "YOLO OBB", "turned box", _from_dota, _read, splits={"train": "train"}),
    Case(
        WRITER,
        "folders of classes",
        "plain",
        _classes,
        kind=CLASSES,
        splits={"train": "train"},
    ),
)
