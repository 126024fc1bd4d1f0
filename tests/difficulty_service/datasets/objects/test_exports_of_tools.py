"""Boxes as CVAT, Label Studio and FiftyOne lay out the formats that they export."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boxed_images import CATEGORIES, SCENES, shown, write_coco, write_voc, write_yolo
from tests.dataset_files import dataset_of, read_samples


def _cvat_yolo(folder: Path) -> None:
    write_yolo(folder, splits=("data",))
    (folder / "data.yaml").unlink()
    for path in (*(folder / "images/data").iterdir(), *(folder / "labels/data").iterdir()):
        (folder / "obj_train_data").mkdir(exist_ok=True)
        path.rename(folder / "obj_train_data" / path.name)
    (folder / "obj.names").write_text("".join(f"{name}\n" for name in CATEGORIES))
    (folder / "obj.data").write_text(
        "classes = 3\ntrain = data/train.txt\nnames = data/obj.names\n"
    )
    lines = "".join(f"data/obj_train_data/{scene.name}.png\n" for scene in SCENES)
    (folder / "train.txt").write_text(lines)
    for name in ("images", "labels"):
        shutil.rmtree(folder / name)


def _cvat_ultralytics(folder: Path) -> None:
    write_yolo(folder)
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CATEGORIES))
    (folder / "data.yaml").write_text(f"names:\n{names}path: .\ntrain: train.txt\n")
    lines = "".join(f"data/images/train/{scene.name}.png\n" for scene in SCENES)
    (folder / "train.txt").write_text(lines)


def _cvat_coco(folder: Path) -> None:
    write_coco(folder, split="default")
    (folder / "images").mkdir()
    (folder / "default").rename(folder / "images/default")


def _cvat_voc(folder: Path) -> None:
    write_voc(folder)
    for name in ("JPEGImages", "Annotations"):
        (folder / "moved").mkdir()
        for path in [*(folder / name).iterdir()]:
            path.rename(folder / "moved" / path.name)
        (folder / "moved").rename(folder / name / "day 1")
    (folder / "labelmap.txt").write_text("# label:color_rgb:parts:actions\n")


def _label_studio_yolo(folder: Path) -> None:
    write_yolo(folder)
    (folder / "data.yaml").unlink()
    for name in ("images", "labels"):
        (folder / name / "train").rename(folder / "moved")
        (folder / name).rmdir()
        (folder / "moved").rename(folder / name)
    (folder / "classes.txt").write_text("\n".join(CATEGORIES))
    (folder / "notes.json").write_text('{"categories": [{"id": 0, "name": "apple"}], "info": {}}')


def _label_studio_coco(folder: Path) -> None:
    write_coco(folder, split="images")
    path = folder / "annotations/instances_images.json"
    text = path.read_text().replace('"file_name": "', '"file_name": "images/')
    (folder / "result.json").write_text(text)
    shutil.rmtree(folder / "annotations")


def _label_studio_voc(folder: Path) -> None:
    write_voc(folder)
    (folder / "JPEGImages").rename(folder / "images")
    shutil.rmtree(folder / "ImageSets")


def _fiftyone_coco(folder: Path) -> None:
    write_coco(folder, split="data")
    (folder / "annotations/instances_data.json").rename(folder / "labels.json")
    (folder / "annotations").rmdir()


def _fiftyone_voc(folder: Path) -> None:
    write_voc(folder)
    (folder / "JPEGImages").rename(folder / "data")
    (folder / "Annotations").rename(folder / "labels")
    shutil.rmtree(folder / "ImageSets")


EXPORTS = (
    *(_cvat_yolo, _cvat_ultralytics, _cvat_coco, _cvat_voc),
    *(_label_studio_yolo, _label_studio_coco, _label_studio_voc, _fiftyone_coco, _fiftyone_voc),
)


@pytest.mark.parametrize("write", EXPORTS, ids=[each.__name__.strip("_") for each in EXPORTS])
def test_what_tools_export_is_read(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "project")

    dataset = dataset_of(tmp_path)
    contents = read_samples(dataset)

    assert dataset.class_names == CATEGORIES
    assert not dataset.skipped
    assert len(contents) == 7
    for sample_id, label in zip(dataset.sample_ids, dataset.labels.tolist(), strict=True):
        assert shown(contents[sample_id]) == CATEGORIES[label]
