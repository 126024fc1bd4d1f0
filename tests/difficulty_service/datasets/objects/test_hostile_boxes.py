"""Annotations that no honest tool writes: none of them ends in anything but a reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset, recognition
from difficulty_service.datasets.sample import Dataset, DatasetOptions, TableLimits
from tests.boxed_images import write_coco, write_voc, write_yolo

LIMITED = DatasetOptions(limits=TableLimits(1000, 1 << 20))


def _with(folder: Path, **annotation: Any) -> Dataset:  # noqa: ANN401 - whatever JSON holds
    path = write_coco(folder) / "annotations/instances_val.json"
    content = json.loads(path.read_text())
    content["annotations"][0] |= annotation
    path.write_text(json.dumps(content))
    return open_dataset(str(folder), LIMITED)


@pytest.mark.parametrize(
    "annotation",
    [
        {"bbox": [10**400, 1, 5, 5]},
        {"bbox": [1, 1, 1e308, 1e308]},
        {"bbox": {"x": 1}},
        {"bbox": [[1], 2, 3, 4]},
        {"id": {"a": 1}},
        {"id": ["\ud800"]},
        {"id": None},
        {"image_id": [1]},
        {"image_id": {}},
        {"category_id": [3]},
        {"category_id": "3"},
        {"category_id": 1e999},
    ],
)
def test_values_of_annotations_that_nobody_expects_are_listed(
    tmp_path: Path, annotation: dict[str, Any]
) -> None:
    dataset = _with(tmp_path, **annotation)

    if annotation == {"bbox": [1, 1, 1e308, 1e308]}:  # larger than any image, and so all of it
        assert len(dataset.sample_ids) == 7
    else:
        assert len(dataset.sample_ids) == 6
        assert len(dataset.skipped) == 1


@pytest.mark.parametrize(
    "image", [{"width": 10**400}, {"file_name": "\ud800.png"}, {"file_name": 7}, {"id": []}]
)
def test_values_of_images_that_nobody_expects_are_listed(
    tmp_path: Path, image: dict[str, Any]
) -> None:
    path = write_coco(tmp_path) / "annotations/instances_val.json"
    content = json.loads(path.read_text())
    content["images"][0] |= image
    path.write_text(json.dumps(content))

    dataset = open_dataset(str(tmp_path), LIMITED)

    assert len(dataset.sample_ids) == (7 if "width" in image else 5)
    assert len(dataset.skipped) == (0 if "width" in image else 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("images", [1]),
        ("annotations", {}),
        ("categories", [{"id": {}}]),
        ("categories", [{"id": 3, "name": "a" * 2000}]),
    ],
)
def test_lists_of_another_kind_are_an_error(tmp_path: Path, name: str, value: object) -> None:
    path = write_coco(tmp_path) / "annotations/instances_val.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))

    with pytest.raises(DatasetError):
        open_dataset(str(tmp_path), LIMITED)


def test_aliases_of_yaml_do_not_grow(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    lists = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    (folder / "data.yaml").write_text(f"train: images/train\nl0: &l0 [a]\n{lists}names: *l11\n")

    assert recognition.detect_kind(str(folder)) == "yolo"
    with pytest.raises(DatasetError, match=r"'data\.yaml' has classes that are neither a list"):
        open_dataset(str(folder), LIMITED)


def test_xml_that_is_nested_deeply_or_has_strange_numbers_is_listed(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    (folder / "Annotations/a.xml").write_text("<annotation>" + "<a>" * 100_000)
    path = folder / "Annotations/c.xml"
    path.write_text(path.read_text().replace("<xmin>6<", "<xmin>nan<").replace(">200<", ">1e999<"))

    dataset = open_dataset(str(folder), LIMITED)

    assert {name for name, _ in dataset.skipped} == {"Annotations/a.xml", "JPEGImages/c.png#1"}
