"""LabelMe, Supervisely and CreateML: shapes in JSON beside images are read as boxes."""

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import TableLimits
from tests.boxed_images import HEIGHT, SCENES, WIDTH, Box, shown, write_image, write_yolo
from tests.dataset_files import dataset_of, read_samples

Json = dict[str, Any]

BOXED = SCENES[:3]
EXPECTED = [category for scene in BOXED for category, *_ in scene.boxes]


def rectangle(box: Box) -> list[list[float]]:
    _, left, top, width, height = box
    return [[left, top], [left + width, top + height]]


def labelme_shape(box: Box, kind: str = "polygon") -> Json:
    (left, top), (right, bottom) = rectangle(box)
    corners = [[left, top], [right, top], [right, bottom], [left, bottom]]
    points = corners if kind == "polygon" else rectangle(box)
    return {"label": box[0], "points": points, "group_id": None, "shape_type": kind, "flags": {}}


def labelme(shapes: list[Json], image: str, **others: object) -> str:
    content = {"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": image}
    content |= {"imageData": None, "imageHeight": HEIGHT, "imageWidth": WIDTH}
    return json.dumps(content | others, indent=2)


def write_labelme(folder: Path, annotations: str = "", kind: str = "polygon") -> Path:
    images = folder / "images" if annotations else folder
    (folder / annotations).mkdir(parents=True, exist_ok=True)
    for scene in BOXED:
        write_image(images / f"{scene.name}.png", scene)
        path = f"..\\images\\{scene.name}.png" if annotations else f"{scene.name}.png"
        shapes = [labelme_shape(box, kind) for box in scene.boxes]
        (folder / annotations / f"{scene.name}.json").write_text(labelme(shapes, path))
    return folder


def write_supervisely(folder: Path, kind: str = "rectangle") -> Path:
    for scene in BOXED:
        write_image(folder / "fruit" / "img" / f"{scene.name}.png", scene)
        objects = [
            {"id": 7, "classTitle": box[0], "geometryType": kind, "tags": []}
            | {"points": {"exterior": rectangle(box), "interior": []}}
            for box in scene.boxes
        ]
        content = {"tags": [], "size": {"height": HEIGHT, "width": WIDTH}, "objects": objects}
        path = folder / "fruit" / "ann" / f"{scene.name}.png.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    (folder / "meta.json").write_text('{"classes": [], "tags": []}')
    return folder


def write_createml(folder: Path) -> Path:
    every = []
    for scene in BOXED:
        write_image(folder / f"{scene.name}.png", scene)
        boxes = [
            {
                "label": category,
                "coordinates": {
                    "x": left + width / 2,
                    "y": top + height / 2,
                    "width": width,
                    "height": height,
                },
            }
            for category, left, top, width, height in scene.boxes
        ]
        every.append({"image": f"{scene.name}.png", "annotations": boxes})
    (folder / "_annotations.createml.json").write_text(json.dumps(every))
    return folder


# type: ignore[arg-type]


WRITERS: Mapping[str, Callable[[Path], Path]] = {
    "labelme": write_labelme,
    "supervisely": write_supervisely,
    "createml": write_createml,
}


@pytest.mark.parametrize("form", list(WRITERS))
def test_shapes_are_read_as_boxes(tmp_path: Path, form: str) -> None:
    dataset = dataset_of(WRITERS[form](tmp_path))

    assert dataset.format == form
    assert dataset.noun == "object"
    assert dataset.sample_ids[0].endswith("a.png#1")
    assert [shown(each) for each in read_samples(dataset).values()] == EXPECTED
    assert dataset.warnings == ()


@pytest.mark.parametrize("form", list(WRITERS))
def test_only_the_shapes_that_somebody_decided_about_differ(tmp_path: Path, form: str) -> None:
    folder = WRITERS[form](tmp_path)
    before = dataset_of(folder)
    assert before.revise is not None
    first, second = before.sample_ids[0], before.sample_ids[2]

    revision = before.revise({first: 'a "ripe" pear', second: None, "gone.png#1": None})

    assert revision.unknown == ["gone.png#1"]
    for name, content in revision.changed.items():
        assert isinstance(content, bytes)
        (folder / name).write_bytes(content)
    after = dataset_of(folder)
    names = [after.class_names[label] for label in after.labels]
    assert names == ['a "ripe" pear', EXPECTED[1], *EXPECTED[3:]]
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {*revision.changed, *revision.others} == files


@pytest.mark.parametrize("annotations", ["annotations", "labels", "json"])
def test_files_of_labelme_in_a_folder_of_their_own_find_their_images(
    tmp_path: Path, annotations: str
) -> None:
    dataset = dataset_of(write_labelme(tmp_path, annotations))

    assert dataset.sample_ids[0] == "images/a.png#1"
    assert [shown(each) for each in read_samples(dataset).values()] == EXPECTED


def test_splits_of_labelme_are_chosen(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_labelme(tmp_path / split)

    with pytest.raises(DatasetError, match="holds the splits"):
        dataset_of(tmp_path)
    assert dataset_of(tmp_path, split="train").sample_ids[0] == "train/a.png#1"


def test_a_polygon_is_an_outline(tmp_path: Path) -> None:
    folder = write_labelme(tmp_path)

    assert dataset_of(folder, outlines=True).fingerprint != dataset_of(folder).fingerprint


def test_a_circle_is_the_box_around_it_and_lines_and_points_are_listed(tmp_path: Path) -> None:
    write_labelme(tmp_path)
    shapes = [
        labelme_shape(("apple", 20, 20, 30, 40), "circle"),
        labelme_shape(("apple", 20, 20, 30, 40), "line"),
        labelme_shape(("apple", 20, 20, 30, 40), "rectangle") | {"label": ""},
    ]
    (tmp_path / "a.json").write_text(labelme(shapes, "a.png"))

    dataset = dataset_of(tmp_path)

    assert dataset.scenes is not None
    assert dataset.scenes.sides[0].tolist() == [-30, -30, 70, 70]
    assert dataset.skipped == [
        ("a.png#2", "it is a shape of the type line, and no box or polygon"),
        ("a.png#3", "it has no category"),
    ]


def test_an_image_that_is_only_in_the_json_is_read_from_there(tmp_path: Path) -> None:
    write_labelme(tmp_path)
    data = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    (tmp_path / "a.png").unlink()
    shapes = [labelme_shape(box) for box in SCENES[0].boxes]
    (tmp_path / "a.json").write_text(labelme(shapes, "a.png", imageData=data))

    dataset = dataset_of(tmp_path)

    assert [shown(each) for each in read_samples(dataset).values()] == EXPECTED


def test_flags_of_images_without_shapes_are_labels_of_images(tmp_path: Path) -> None:
    for scene, flags in zip(
        SCENES,
        (
            {"ripe": True, "raw": False},
            {"ripe": False, "raw": True},
            {"ripe": True, "raw": True},
            {},
        ),
        strict=True,
    ):
        write_image(tmp_path / f"{scene.name}.png", scene)
        (tmp_path / f"{scene.name}.json").write_text(labelme([], f"{scene.name}.png", flags=flags))

    dataset = dataset_of(tmp_path)

    assert dataset.noun == "image"
    assert dict(zip(dataset.sample_ids, dataset.labels.tolist(), strict=True)) == {
        "a.png": 1,
        "b.png": 0,
    }
    assert dataset.class_names == ("raw", "ripe")
    assert dataset.skipped == [
        ("c.png", "several flags are set: ripe, raw"),
        ("empty.png", "no flag is set"),
    ]


def test_a_damaged_file_is_listed(tmp_path: Path) -> None:
    write_labelme(tmp_path)
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text[:-40])

    dataset = dataset_of(tmp_path)

    assert len(dataset.labels) == len(EXPECTED) - 2
    assert dataset.skipped[0][0] == "a.json"
    assert "its boxes cannot be read" in dataset.skipped[0][1]


def test_the_annotations_of_other_formats_come_first(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    (tmp_path / "a.json").write_text(labelme([labelme_shape(SCENES[0].boxes[0])], "a.png"))

    assert dataset_of(tmp_path).format == "yolo"


def test_shapes_of_people_who_are_not_trusted_are_limited(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the maximum is 3"):
        dataset_of(write_labelme(tmp_path), limits=TableLimits(3, 10_000))
