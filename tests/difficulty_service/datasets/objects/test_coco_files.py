"""COCO as tools write it: which files are of it, where their images are, and turned photographs."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from difficulty_service.analyses.missing_boxes.find import find_windows
from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import recognition
from difficulty_service.datasets.objects import coco_files
from difficulty_service.datasets.storage import boundary_at
from difficulty_service.settings.command_options import MissingOptions
from tests.boxed_images import SCENES, shown, write_coco, write_label_studio
from tests.dataset_files import dataset_of, read_samples

pytestmark = pytest.mark.analysis("missing_boxes")


def _change(folder: Path, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Path:
    """Replaces what the file of a dataset says."""
    path = folder / "annotations/instances_val.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return path


def _with_names(folder: Path, name: str) -> Path:
    """A dataset whose images are called by a pattern."""

    def change(content: dict[str, Any]) -> dict[str, Any]:
        for image in content["images"]:
            image["file_name"] = name.format(image["file_name"])
        return content

    return _change(write_coco(folder), change)


@pytest.mark.parametrize(
    "first",
    [
        {"name": "fruit", "version": 2},
        {"year": 2026},
        {"my notes": {"images": ["{", {"a": '"]'}]}},
        {"padding": ["x" * 1000] * 400},
        {"info": {"text": "x" * 400_000}},
    ],
    ids=["name", "year", "nested", "long list", "long text"],
)
def test_coco_is_recognised_whatever_key_is_the_first(
    tmp_path: Path, first: Mapping[str, object]
) -> None:
    folder = write_coco(tmp_path)
    path = _change(folder, lambda content: {**first, **content})

    assert recognition.detect_kind(str(folder)) == "coco"
    assert len(dataset_of(path).sample_ids) == 7


@pytest.mark.parametrize(
    "keys", [("annotations", "categories", "images"), ("categories", "images")]
)
def test_the_lists_of_coco_may_be_in_any_order(tmp_path: Path, keys: tuple[str, ...]) -> None:
    folder = write_coco(tmp_path)
    path = _change(
        folder, lambda content: {**{key: content[key] for key in keys}, "x": 1, **content}
    )

    assert len(dataset_of(path).sample_ids) == 7


@pytest.mark.parametrize(
    "content",
    [
        {"info": {"title": "an interface"}, "paths": {}},
        {"images": [{"filename": "a.jpg", "sentences": []}], "dataset": "coco"},
        {"info": {}, "categories": {"label": {}}, "items": []},
        {"type": "FeatureCollection", "features": []},
        {"name": "a", "images": []},
        {"images": {"a": 1}, "annotations": {}, "categories": {}},
    ],
)
def test_other_json_beside_classes_is_not_taken_for_coco(
    tmp_path: Path, content: Mapping[str, object]
) -> None:
    path = write_coco(tmp_path) / "annotations/instances_val.json"
    shutil.move(tmp_path / "val", tmp_path / "photos/apple")
    path.unlink()
    (tmp_path / "photos/notes.json").write_text(json.dumps(content))

    assert recognition.detect_kind(str(tmp_path / "photos")) == "image-folder"


def test_recognition_reads_a_bounded_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coco_files, "_HEAD_BYTES", 64)
    monkeypatch.setattr(coco_files, "_TRIED_BYTES", 512)
    path = tmp_path / "a.json"
    lists = '"images": [], "annotations": [], "categories": []}'
    path.write_text('{"x": "' + "x" * 100 + f'", {lists}')
    near = coco_files.is_coco_file(_place(path))
    path.write_text('{"x": "' + "x" * 1000 + f'", {lists}')

    assert near
    assert not coco_files.is_coco_file(_place(path))


def _place(path: Path) -> Any:  # noqa: ANN401
    from difficulty_service.datasets.storage import resolve

    return resolve(str(path))


@pytest.mark.parametrize("name", ["ann", "Labels", "coco"])
def test_the_folder_of_annotations_may_be_called_otherwise(tmp_path: Path, name: str) -> None:
    folder = write_coco(tmp_path)
    (folder / "annotations").rename(folder / name)

    assert recognition.detect_kind(str(folder)) == "coco"
    assert len(dataset_of(folder).sample_ids) == 7


@pytest.mark.parametrize("has_list", [True, False])
def test_images_without_annotations_are_no_split(tmp_path: Path, has_list: bool) -> None:  # noqa: FBT001
    folder = write_coco(tmp_path)
    content = json.loads((folder / "annotations/instances_val.json").read_text())
    if has_list:
        content["annotations"] = []
    else:
        del content["annotations"]
    name = "image_info_test.json" if has_list else "test.json"
    (folder / "annotations" / name).write_text(json.dumps(content))

    assert len(dataset_of(folder).sample_ids) == 7
    if not has_list:
        with pytest.raises(DatasetError, match="no list of annotations; name a file with the"):
            dataset_of(folder / "annotations" / name)


@pytest.mark.parametrize(
    "name",
    [
        "../upload/1/{}",
        "/data/upload/1/{}",
        "C:\\fruit\\val\\{}",
        "val\\{}",
        "/data/fruit/val/{}",
        "elsewhere/{}",
    ],
)
def test_images_whose_names_are_of_another_machine_are_found_by_their_ends(
    tmp_path: Path, name: str
) -> None:
    path = _with_names(tmp_path / "fruit", name)

    for location in (path.parent.parent, path):
        dataset = dataset_of(location)
        assert dataset.sample_ids[0] == f"{name.format('a.png')}#100"
        contents = read_samples(dataset)
        assert [shown(each) for each in contents.values()] == [
            dataset.class_names[label] for label in dataset.labels
        ]
        assert dataset.revise is not None
        revision = dataset.revise({dataset.sample_ids[0]: None})
        assert [each for each in revision.others if "val" in each] == [
            f"val/{scene.name}.png" for scene in SCENES
        ]


@pytest.mark.parametrize("folder", ["train", "elsewhere"])
def test_an_image_that_is_missing_is_none_of_another_folder_or_split(
    tmp_path: Path, folder: str
) -> None:
    one = write_coco(tmp_path / "one")
    (one / folder).mkdir()
    shutil.move(one / "val/a.png", one / folder / "a.png")
    other = write_coco(tmp_path / "other")
    shutil.move(other / "val", other / "train")

    missing = [each for each in read_samples(dataset_of(one)).values() if isinstance(each, str)]
    of_train = [each for each in read_samples(dataset_of(other)).values() if isinstance(each, str)]

    assert missing == ["no such file"] * 2
    assert of_train == ["no such file"] * 7


def test_names_that_end_alike_are_told_apart_or_listed(tmp_path: Path) -> None:
    folder = write_coco(tmp_path, SCENES[:3])
    names = dict(zip("abc", ("/x/1/a.png", "/x/2/a.png", "/x/val/a.png"), strict=True))

    def change(content: dict[str, Any]) -> dict[str, Any]:
        for image in content["images"]:
            image["file_name"] = names[image["file_name"][0]]
        return content

    _change(folder, change)
    contents = read_samples(dataset_of(folder))

    assert [name for name, each in contents.items() if isinstance(each, bytes)] == [
        "/x/val/a.png#105",
        "/x/val/a.png#106",
    ]
    shutil.copytree(folder / "val", folder / "1")
    (folder / "val/a.png").unlink()
    both = read_samples(dataset_of(folder))
    assert isinstance(both["/x/1/a.png#100"], bytes)
    assert both["/x/2/a.png#102"] == "no such file"


def test_names_outside_of_a_boundary_find_nothing_there(tmp_path: Path) -> None:
    path = _with_names(tmp_path / "fruit", "/secret/{}")
    shutil.move(tmp_path / "fruit/val", tmp_path / "val")
    boundary = boundary_at(str(tmp_path / "fruit"))

    dataset = dataset_of(path, boundary=boundary)

    assert all(isinstance(each, str) for each in read_samples(dataset).values())


def test_images_that_are_listed_twice_are_skipped_where_both_have_boxes(tmp_path: Path) -> None:
    folder = write_coco(tmp_path)

    def change(content: dict[str, Any]) -> dict[str, Any]:
        images = content["images"]
        images[1]["file_name"] = "a.png"  # was b.png, with three boxes
        images.append(images[2] | {"id": 99})  # c.png again, without boxes
        return content

    _change(folder, change)

    dataset = dataset_of(folder)

    assert dataset.sample_ids == ["c.png#105", "c.png#106"]
    assert [name for name, _ in dataset.skipped] == [f"annotation {100 + row}" for row in range(5)]
    assert {reason for _, reason in dataset.skipped} == {
        "several images of the file are called 'a.png'"
    }
    assert dataset.scenes is not None
    assert sorted(dataset.scenes.names) == ["c.png", "empty.png"]


def _turned(folder: Path, contributor: str) -> Path:
    """An export whose photographs lie on their side, with their stored sizes and upright boxes."""
    write_coco(folder)
    for scene in SCENES:
        path = folder / f"val/{scene.name}.png"
        with Image.open(path) as image:
            exif = Image.Exif()
            exif[0x0112] = 6  # who shows it turns it to the right
            image.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)

    def change(content: dict[str, Any]) -> dict[str, Any]:
        for image in content["images"]:
            image |= {"width": 100, "height": 200}
        return content | {"info": {"contributor": contributor}}

    return _change(folder, change)


def test_boxes_of_turned_photographs_that_label_studio_exports_are_where_they_were(
    tmp_path: Path,
) -> None:
    before = read_samples(dataset_of(write_coco(tmp_path / "before")))

    dataset = dataset_of(_turned(tmp_path / "after", "Label Studio"))
    after = read_samples(dataset)

    assert {name: shown(each) for name, each in after.items()} == {
        name: shown(each) for name, each in before.items()
    }
    assert "3 images with boxes of another size: read as upright" in dataset.warnings
    assert dataset.scenes is not None
    windows = find_windows(dataset.scenes, MissingOptions(sample=10))
    assert {*windows.sizes.values()} == {(200.0, 100.0)}


def test_boxes_beyond_the_stored_size_are_upright_whoever_wrote_them(tmp_path: Path) -> None:
    contents = read_samples(dataset_of(_turned(tmp_path, "somebody")))

    assert shown(contents["a.png#101"]) == "leaf"  # from 120 to 160 of 100 pixels
    assert shown(contents["a.png#100"]) == "apple"


def test_exports_of_other_formats_in_json_are_not_coco(tmp_path: Path) -> None:
    path = write_label_studio(tmp_path) / "project-1.json"

    assert not coco_files.is_coco_file(_place(path))


def _without_ids(content: dict[str, Any]) -> dict[str, Any]:
    for annotation in content["annotations"]:
        del annotation["id"]
    return content


def test_boxes_of_a_file_without_ids_are_called_by_their_places(tmp_path: Path) -> None:
    before = dataset_of(write_coco(tmp_path / "before"))
    folder = write_coco(tmp_path / "after")
    path = _change(folder, _without_ids)

    after = dataset_of(folder)

    names = [each.replace("#10", "#") for each in before.sample_ids]
    assert after.sample_ids == [f"{each[:-1]}{int(each[-1]) + 1}" for each in names]
    assert not after.skipped
    assert [*map(shown, read_samples(after).values())] == [
        *map(shown, read_samples(before).values())
    ]
    assert after.revise is not None
    first, last = after.sample_ids[0], after.sample_ids[-1]
    revision = after.revise({first: "plum", last: None, "a.png#100": None})
    given = json.loads(path.read_text())["annotations"]
    content = revision.changed["annotations/instances_val.json"]
    assert isinstance(content, bytes)
    assert json.loads(content)["annotations"] == [given[0] | {"category_id": 13}, *given[1:-1]]
    assert revision.unknown == ["a.png#100"]


def test_boxes_beside_others_with_ids_are_listed_where_they_have_none(tmp_path: Path) -> None:
    folder = write_coco(tmp_path)

    def change(content: dict[str, Any]) -> dict[str, Any]:
        del content["annotations"][1]["id"]
        return content

    _change(folder, change)

    dataset = dataset_of(folder)

    assert dataset.skipped == [("a.png##1", "it has no id")]
    assert len(dataset.sample_ids) == 6
