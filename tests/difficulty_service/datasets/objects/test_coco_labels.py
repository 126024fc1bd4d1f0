"""COCO without boxes: the images are the samples, and their categories the labels."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.boxed_images import SCENES, shown, write_coco
from tests.dataset_files import dataset_of, read_samples

Json = Mapping[str, Any]


# type: ignore[arg-type]


def write(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The scenes, whose annotations are changed one by one; `change` may return another one."""
    path = write_coco(folder) / "annotations" / "instances_val.json"
    content = json.loads(path.read_text())
    content["annotations"] = [change(each) or each for each in content["annotations"]]
    path.write_text(json.dumps(content))
    return folder


def only_category(annotation: Json) -> Json:
    return {name: annotation[name] for name in ("id", "image_id", "category_id")}


def first_of_each(folder: Path) -> Path:
    """A category for each image but the last, as iNaturalist has them."""
    path = write(folder, only_category) / "annotations" / "instances_val.json"
    content = json.loads(path.read_text())
    first = {each["image_id"]: each for each in reversed(content["annotations"])}
    content["annotations"] = list(first.values())
    path.write_text(json.dumps(content))
    return folder


def test_categories_of_images_without_boxes_are_labels(tmp_path: Path) -> None:
    dataset = dataset_of(first_of_each(tmp_path))

    assert dataset.noun == "image"
    assert dataset.sample_ids == ["a.png", "b.png", "c.png"]
    names = [dataset.class_names[label] for label in dataset.labels]
    assert names == [scene.boxes[0][0] for scene in SCENES[:3]]
    assert dataset.skipped == [("empty.png", "it has no annotation")]
    assert "no annotation has a box" in dataset.warnings[0]
    with next(dataset.read_shard(0)).open() as file:
        assert file.read() == (tmp_path / "val/a.png").read_bytes()


def test_an_image_of_several_categories_has_no_label(tmp_path: Path) -> None:
    folder = first_of_each(tmp_path)
    path = folder / "annotations" / "instances_val.json"
    content = json.loads(path.read_text())
    content["annotations"].append({"id": 1, "image_id": 0, "category_id": 13})
    path.write_text(json.dumps(content))

    dataset = dataset_of(folder)

    assert dataset.sample_ids == ["b.png", "c.png"]
    assert ("a.png", "it has several categories, as tags are: apple, plum") in dataset.skipped
    assert dataset_of(folder, unlabelled=True).sample_ids == [
        "a.png",
        "b.png",
        "c.png",
        "empty.png",
    ]


def test_annotations_of_nothing_are_listed(tmp_path: Path) -> None:
    folder = first_of_each(tmp_path)
    path = folder / "annotations" / "instances_val.json"
    content = json.loads(path.read_text())
    content["annotations"] += [
        {"id": 900, "image_id": 77, "category_id": 3},
        {"id": 901, "image_id": 3, "category_id": 77},
    ]
    path.write_text(json.dumps(content))

    skipped = dict(dataset_of(folder).skipped)

    assert skipped["annotation 900"] == "there is no image 77"
    assert skipped["annotation 901"] == "there is no category 77"


def test_images_without_boxes_beside_others_are_counted(tmp_path: Path) -> None:
    def change(annotation: dict[str, Any]) -> None:
        if annotation["image_id"] == 0:
            del annotation["bbox"], annotation["segmentation"]

    dataset = dataset_of(write(tmp_path, change))

    assert dataset.noun == "object"
    assert not any(each.startswith("a.png") for each in dataset.sample_ids)
    assert "2 images have no box" in dataset.warnings
    assert "2 annotations without a box, which say nothing of objects" in dataset.warnings


def test_an_outline_stands_for_the_box_that_is_missing(tmp_path: Path) -> None:
    def change(annotation: dict[str, Any]) -> None:
        left, top, width, height = annotation.pop("bbox")
        right, bottom = left + width, top + height
        annotation["segmentation"] = [[left, top, right, top, right, bottom, left, bottom]]

    dataset = dataset_of(write(tmp_path, change))

    expected = [category for scene in SCENES for category, *_ in scene.boxes]
    assert [shown(each) for each in read_samples(dataset).values()] == expected


@pytest.mark.parametrize("key", ["keypoints", "bbox"])
def test_other_annotations_than_of_whole_images_are_not_taken_for_them(
    tmp_path: Path, key: str
) -> None:
    def change(annotation: dict[str, Any]) -> None:
        if annotation["image_id"]:
            annotation[key] = [1, 2, 3, 4]

    assert dataset_of(write(tmp_path, change)).noun == "object"
