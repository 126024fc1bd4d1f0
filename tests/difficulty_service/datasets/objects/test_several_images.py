"""Tasks of Label Studio with several images, and images that are listed twice in other formats."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from tests.boxed_images import SCENES, shown, write_image, write_label_studio

Contents = Callable[[Dataset], dict[str, bytes | str]]
Json = dict[str, Any]


def _open(path: Path) -> Dataset:
    return open_dataset(str(path), DatasetOptions())


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
        ({"left": "/d/left.png", "image": "/d/a.png"}, "canvas"),
        ({"url": "/d/0a1b2c3d-a.png", "file": "a.png"}, "canvas"),
        ({"caption": "a.b", "scan": "/d/a.png"}, "canvas"),
    ],
)
def test_a_region_is_on_the_image_that_its_tag_shows(
    tmp_path: Path, read_samples: Contents, data: Mapping[str, str], tag: str
) -> None:
    dataset = _open(_task(tmp_path, data, {"to_name": tag}))

    assert dataset.sample_ids[0] == "images/a.png#r0"
    assert shown(read_samples(dataset)["images/a.png#r0"]) == "apple"
    assert not dataset.skipped


def test_regions_of_one_task_are_on_their_own_images_each_with_its_size(
    tmp_path: Path, read_samples: Contents
) -> None:
    data = {"left": "/d/left.png", "right": "/d/a.png"}
    small = {"to_name": "left", "original_width": 100, "original_height": 50}
    path = _task(tmp_path, data, small, {"to_name": "right"}, {"to_name": "right", "id": "r0"})

    dataset = _open(path)

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

    dataset = _open(
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

    dataset = _open(_task(tmp_path, data, {"to_name": "canvas"}))

    reason = (
        "its task has several images (before, after), and none is called 'canvas' as its tag is"
    )
    assert dataset.skipped == [("task 0#r0", reason)]
    assert dataset.sample_ids[0].startswith("images/b.png#")


def test_answers_about_a_text_do_not_make_it_an_image(tmp_path: Path) -> None:
    answer = {"type": "choices", "value": {"choices": ["ripe"]}, "to_name": "note"}

    dataset = _open(
        _task(tmp_path, {"note": "green", "scan": "/d/a.png"}, {"to_name": "x"}, answer)
    )

    assert dataset.sample_ids[0] == "images/a.png#r0"


def test_regions_that_do_not_say_the_size_of_their_image_are_shares_of_it(
    tmp_path: Path, read_samples: Contents
) -> None:
    sizes = {"original_width": None, "original_height": None}

    dataset = _open(_task(tmp_path, {"image": "/d/a.png"}, sizes))

    assert shown(read_samples(dataset)["images/a.png#r0"]) == "apple"
