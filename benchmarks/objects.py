"""Wrong categories of boxes: how many are found, in each format.

    DIFFICULTY_SHARED=FOLDER python benchmarks/objects.py [--images 125] [--backbone builtin-photos]

Pastes eight photographs of CIFAR-10's test set at 40 to 90 pixels into each image, whose ground is
an enlarged photograph of Tiny ImageNet, writes their boxes as COCO, YOLO and Pascal VOC, gives 5 %
of them another category at random, and scores. Prints the AUROC of `suspicion` and the share of
wrong ones among as many boxes as there are wrong ones, those with the largest suspicion.
"""

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from sklearn.metrics import roc_auc_score

import difficulty_service as ds

SHARED = Path(os.environ.get("DIFFICULTY_SHARED", "../shared"))
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDES = (640, 320)
ROWS, COLUMNS, CELL = 2, 4, 160
WRONG = 0.05


@dataclass(frozen=True)
class Object:
    """A photograph in an image.

    Attributes:
        given: Category that its box has, which may be wrong.
    """

    box: tuple[int, int, int, int]
    given: int
    is_wrong: bool


def paste(shared: Path, images: int, folder: Path) -> list[list[Object]]:
    """Writes the images as JPEG; the objects of each."""
    random = np.random.default_rng(0)
    photographs = pq.read_table(shared / "data/cifar10_test.parquet", columns=["image", "label"])
    grounds = pq.read_table(shared / "data/tiny_imagenet_val2000.parquet", columns=["image"])
    folder.mkdir(parents=True)
    scenes = []
    for number in range(images):
        ground = grounds["image"][number % len(grounds)].as_py()
        scene = (
            Image.open(io.BytesIO(ground)).convert("RGB").resize(SIDES, Image.Resampling.BICUBIC)
        )
        objects = []
        for cell in range(ROWS * COLUMNS):
            row = number * ROWS * COLUMNS + cell
            side = int(random.integers(40, 91))
            left, top = (
                CELL * place + int(random.integers(0, CELL - side))
                for place in (cell % COLUMNS, cell // COLUMNS)
            )
            photograph = Image.open(io.BytesIO(photographs["image"][row].as_py())).convert("RGB")
            scene.paste(photograph.resize((side, side), Image.Resampling.BICUBIC), (left, top))
            label, is_wrong = photographs["label"][row].as_py(), bool(random.random() < WRONG)
            given = (label + int(random.integers(1, len(CLASSES)))) % len(CLASSES)
            objects.append(Object((left, top, side, side), given if is_wrong else label, is_wrong))
        scene.save(folder / f"{number:05}.jpg", quality=92)
        scenes.append(objects)
    return scenes


def write_coco(folder: Path, scenes: Sequence[Sequence[Object]]) -> Path:
    """Writes `annotations.json` beside the folder of images."""
    images = [
        {"id": number, "file_name": f"{number:05}.jpg", "width": SIDES[0], "height": SIDES[1]}
        for number in range(len(scenes))
    ]
    annotations = [
        {"image_id": number, "category_id": each.given, "bbox": each.box}
        for number, scene in enumerate(scenes)
        for each in scene
    ]
    content = {
        "images": images,
        "annotations": [{"id": row, **each} for row, each in enumerate(annotations)],
        "categories": [{"id": row, "name": name} for row, name in enumerate(CLASSES)],
    }
    path = folder / "annotations.json"
    path.write_text(json.dumps(content))
    return path


def write_yolo(folder: Path, scenes: Sequence[Sequence[Object]]) -> Path:
    """Writes `data.yaml` and the folder `labels`."""
    (folder / "labels").mkdir()
    for number, scene in enumerate(scenes):
        lines = []
        for each in scene:
            left, top, width, height = each.box
            middle = (left + width / 2) / SIDES[0], (top + height / 2) / SIDES[1]
            numbers = (each.given, *middle, width / SIDES[0], height / SIDES[1])
            lines.append(" ".join(map(str, numbers)))
        (folder / f"labels/{number:05}.txt").write_text("\n".join(lines))
    path = folder / "data.yaml"
    path.write_text(json.dumps({"train": "images", "names": CLASSES}))
    return path


def write_voc(folder: Path, scenes: Sequence[Sequence[Object]]) -> Path:
    """Writes the folder `Annotations`."""
    (folder / "Annotations").mkdir()
    for number, scene in enumerate(scenes):
        objects = ""
        for each in scene:
            left, top, width, height = each.box
            corners = {
                "xmin": left + 1,
                "ymin": top + 1,
                "xmax": left + width,
                "ymax": top + height,
            }
            box = "".join(f"<{name}>{value}</{name}>" for name, value in corners.items())
            name = f"<name>{CLASSES[each.given]}</name>"
            objects += f"<object>{name}<bndbox>{box}</bndbox></object>"
        text = f"<annotation><filename>{number:05}.jpg</filename>{objects}</annotation>"
        (folder / f"Annotations/{number:05}.xml").write_text(text)
    return folder


WRITERS: dict[str, Callable[[Path, Sequence[Sequence[Object]]], Path]] = {
    "COCO": write_coco,
    "YOLO": write_yolo,
    "Pascal VOC": write_voc,
}


def main() -> None:
    """Writes, scores and prints a line for each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=125)
    parser.add_argument("--backbone", default="builtin-photos")
    arguments = parser.parse_args()
    if not (SHARED / "data/cifar10_test.parquet").exists():
        sys.exit(f"skipped: CIFAR-10 is not in {SHARED} (DIFFICULTY_SHARED)")
    with tempfile.TemporaryDirectory() as temporary:
        images = Path(temporary) / "images"
        scenes = paste(SHARED, arguments.images, images)
        is_wrong = np.array([each.is_wrong for scene in scenes for each in scene])
        for name, write in WRITERS.items():
            folder = Path(temporary) / name
            folder.mkdir()
            (folder / "images").symlink_to(images)
            place = write(folder, scenes)
            scores = ds.score_dataset(place, backbone=arguments.backbone, progress=False)
            suspicion = scores["suspicion"].to_numpy()
            first = np.argsort(-suspicion)[: is_wrong.sum()]
            print(
                f"{name}: {is_wrong.sum()} of {len(is_wrong):,} boxes are wrong; AUROC "
                f"{roc_auc_score(is_wrong, suspicion):.3f}; {is_wrong[first].mean():.0%} of the "
                f"{len(first)} most suspicious are wrong"
            )


if __name__ == "__main__":
    main()
