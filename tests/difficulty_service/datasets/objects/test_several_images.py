"""Tasks of Label Studio with several images, and images that are listed twice in other formats."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.base.errors import DatasetError
from tests.boxed_images import (
    SCENES,
    shown,
    write_cvat,
    write_image,
    write_label_studio,
    write_voc,
)
from tests.dataset_files import dataset_of, read_samples

Json = dict[str, Any]


def _task(folder: Path, data: Mapping[str, object], *results: Mapping[str, object]) -> Path:
    """An export whose first task has other data and the first region for each of some changes."""
    path = write_label_studio(folder, SCENES[:2]) / "project-1.json"
    tasks: list[Json] = json.loads(path.read_text())
    first = tasks[0]["annotations"][0]["result"][0]
    regions = [{**first, "id": f"r{row}", **each} for row, each in enumerate(results)]
    tasks[0]["annotations"][0]["result"] = regions
    tasks[0]["data"] = data
    path.write_text(json.dumps(tasks))
    for name in ("thumb", "left", "right"):
        write_image(folder / f"images/{name}.png", SCENES[2])
    return path


@pytest.mark.parametrize(
    ("data", "tag"),
    [
        ({"thumb": "/d/thumb.png", "image": "/d/a.png"}, "image"),
        ({"thumb": "/d/thumb.png", "image": "/d/a.png"}, "img"),
        ({"thumb": "/d/thumb.png", "scan": "/d/a.png"}, "canvas"),
        ({"preview_url": "/d/thumb.png", "Image_1": "/d/a.png", "image2": "/d/left.png"}, "img-1"),
        ({"left": "/d/left.png", "scan": "/d/a.png"}, "scan"),
        ({"image1": "/d/left.png", "image_1": "/d/a.png"}, "image_1"),
        ({"left": "/d/left.png", "image": "/d/a.png"}, "canvas"),
        ({"url": "/d/0a1b2c3d-a.png", "file": "a.png"}, "canvas"),
        ({"caption": "a.b", "scan": "/d/a.png"}, "canvas"),
        ({"left": "/d/left.png", "right_url": "/d/a.png"}, "right_image"),
        ({"image": "/tasks/1/resolve/?fileuri=czM6Ly9iL2QvYS5wbmc="}, "img"),
        ({"image": "https://host/tasks/1/presign/?fileuri=czM6Ly9iL2QvYS5wbmc="}, "img"),
    ],
)
def test_a_region_is_on_the_image_that_its_tag_shows(
    tmp_path: Path, data: Mapping[str, str], tag: str
) -> None:
    dataset = dataset_of(_task(tmp_path, data, {"to_name": tag}))

    assert dataset.sample_ids[0] == "images/a.png#r0"
    assert shown(read_samples(dataset)["images/a.png#r0"]) == "apple"
    assert not dataset.skipped


def test_regions_of_one_task_are_on_their_own_images_each_with_its_size(tmp_path: Path) -> None:
    data = {"left": "/d/left.png", "right": "/d/a.png"}
    small = {"to_name": "left", "original_width": 100, "original_height": 50}
    path = _task(tmp_path, data, small, {"to_name": "right"}, {"to_name": "right", "id": "r0"})

    dataset = dataset_of(path)

    assert dataset.sample_ids[:3] == ["images/left.png#r0", "images/a.png#r1", "images/a.png#r0"]
    assert dataset.scenes is not None
    assert [*dataset.scenes.frames[:2]] == [(100.0, 50.0), (200.0, 100.0)]
    assert shown(read_samples(dataset)["images/a.png#r1"]) == "apple"
    assert dataset.revise is not None
    revision = dataset.revise({"images/left.png#r0": "plum"})
    text = bytes(revision.changed["project-1.json"]).decode()  # type: ignore[arg-type]
    assert text == path.read_text().replace('["apple"]', '["plum"]', 1)


def test_pages_are_images_of_their_own(tmp_path: Path) -> None:
    data = {"pages": ["/d/left.png", "/d/a.png", "/d/right.png"]}

    dataset = dataset_of(
        _task(tmp_path, data, {"item_index": 1}, {"item_index": 0}, {}, {"item_index": 3})
    )

    assert dataset.sample_ids[:2] == ["images/a.png#r0", "images/left.png#r1"]
    assert dataset.skipped == [
        ("task 0#r2", "it does not say on which of 3 pages it is"),
        ("task 0#r3", "its page '3' is none of the 3 of its task"),
    ]
    assert dataset.scenes is not None
    assert "images/right.png" in dataset.scenes.names
    assert "1 image has no box" in dataset.warnings


def test_a_region_that_may_be_on_several_images_is_listed_and_not_guessed(tmp_path: Path) -> None:
    data = {"before": "/d/left.png", "after": "/d/right.png"}

    dataset = dataset_of(_task(tmp_path, data, {"to_name": "canvas"}))

    reason = (
        "its task has several images (before, after), and none is called 'canvas' as its tag is"
    )
    assert dataset.skipped == [("task 0#r0", reason)]
    assert dataset.sample_ids[0].startswith("images/b.png#")


def test_answers_about_a_text_do_not_make_it_an_image(tmp_path: Path) -> None:
    answer = {"type": "choices", "value": {"choices": ["ripe"]}, "to_name": "note"}

    dataset = dataset_of(
        _task(tmp_path, {"note": "green", "scan": "/d/a.png"}, {"to_name": "x"}, answer)
    )

    assert dataset.sample_ids[0] == "images/a.png#r0"


def test_regions_that_do_not_say_the_size_of_their_image_are_shares_of_it(tmp_path: Path) -> None:
    sizes = {"original_width": None, "original_height": None}

    dataset = dataset_of(_task(tmp_path, {"image": "/d/a.png"}, sizes))

    assert shown(read_samples(dataset)["images/a.png#r0"]) == "apple"


def _cvat(folder: Path, subsets: Mapping[str, str]) -> Path:
    """An export whose first images are called alike, in the subsets of their former names."""
    path = write_cvat(folder) / "annotations.xml"
    text = path.read_text()
    for name, subset in subsets.items():
        text = text.replace(f'name="{name}.png"', f'name="frame.png" subset="{subset}"')
    path.write_text(text.replace(' subset=""', ""))
    write_image(folder / "images/frame.png", SCENES[0])
    return path


def test_frames_of_several_tasks_that_are_called_alike_are_skipped_and_others_are_read(
    tmp_path: Path,
) -> None:
    dataset = dataset_of(_cvat(tmp_path, {"a": "", "b": ""}))

    assert dataset.sample_ids == ["images/c.png#1", "images/c.png#2"]
    assert len(dataset.skipped) == 5
    assert {reason for _, reason in dataset.skipped} == {
        "several images of the file are called 'images/frame.png'"
    }
    assert dataset.revise is not None
    revision = dataset.revise({"images/c.png#2": None})
    assert b'label="plum"' in bytes(revision.changed["annotations.xml"])  # type: ignore[arg-type]
    assert bytes(revision.changed["annotations.xml"]).count(b"<box") == 6  # type: ignore[arg-type]


def test_frames_of_two_subsets_that_are_called_alike_are_read_by_one_subset(tmp_path: Path) -> None:
    path = _cvat(tmp_path, {"a": "Train", "b": "Test"})

    every = dataset_of(path)
    train = dataset_of(path, split="Train")

    assert every.sample_ids == ["images/c.png#1", "images/c.png#2"]
    (reason,) = {reason for _, reason in every.skipped}
    assert reason.endswith("choose one of the subsets Test, Train as split")
    assert train.sample_ids == ["images/frame.png#1", "images/frame.png#2"]
    assert [shown(each) for each in read_samples(train).values()] == ["apple", "leaf"]


def test_a_split_of_an_export_without_subsets_is_refused_with_what_works(tmp_path: Path) -> None:
    path = write_cvat(tmp_path) / "annotations.xml"

    with pytest.raises(DatasetError, match="has no subsets; leave out split"):
        dataset_of(path, split="train")


def test_an_image_that_two_files_of_voc_are_about_is_skipped(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    text = (folder / "Annotations/a.xml").read_text()
    (folder / "Annotations/copy.xml").write_text(text)
    (folder / "Annotations/c2.xml").write_text(
        "<annotation><filename>c.png</filename></annotation>"
    )

    dataset = dataset_of(folder)

    assert [name.partition("#")[0] for name in dataset.sample_ids] == [
        *["JPEGImages/b.png"] * 3,
        *["JPEGImages/c.png"] * 2,
    ]
    assert dataset.skipped == [
        (f"Annotations/{name}.xml", "several files are about its image 'JPEGImages/a.png'")
        for name in ("a", "copy")
    ]
    assert dataset.revise is not None
    assert dataset.revise({"JPEGImages/a.png#1": None}).unknown == ["JPEGImages/a.png#1"]


def test_two_tasks_whose_images_may_be_one_are_not_put_together(tmp_path: Path) -> None:
    path = write_label_studio(tmp_path, SCENES[:3]) / "project-1.json"
    text = path.read_text().replace("0a1b2c3d-b.png", "ffffffff-a.png")
    path.write_text(text)

    contents = read_samples(dataset_of(path))

    assert [name for name, each in contents.items() if isinstance(each, bytes)] == [
        "images/c.png#105",
        "images/c.png#106",
    ]
    assert contents["/data/upload/1/ffffffff-a.png#102"] == (
        "one image may be '/data/upload/1/ffffffff-a.png' or /data/upload/1/0a1b2c3d-a.png"
    )
