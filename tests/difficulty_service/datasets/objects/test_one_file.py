"""Exports of Label Studio and CVAT: which annotations count, outlines, splits, where images are."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import recognition
from difficulty_service.datasets.sample import Dataset
from tests.boxed_images import SCENES, shown, write_cvat, write_image, write_label_studio
from tests.dataset_files import dataset_of, read_samples


def _tasks(path: Path) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = json.loads(path.read_text())
    return tasks


def _with_annotations(folder: Path, annotations: list[Mapping[str, Any]]) -> Dataset:
    """The export with more annotations of the first task, each with an apple in other places."""
    path = write_label_studio(folder) / "project-1.json"
    tasks = _tasks(path)
    (first,) = tasks[0]["annotations"]
    region = first["result"][0]
    tasks[0]["annotations"] += [
        first | {"result": [region | {"id": f"other{row}"}]} | each
        for row, each in enumerate(annotations)
    ]
    tasks[1]["predictions"] = [{"result": first["result"]}]
    tasks[2]["drafts"] = [{"result": first["result"]}]
    path.write_text(json.dumps(tasks))
    return dataset_of(folder)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ([{"updated_at": "2026-02-01T00:00:00Z"}], ["other0"]),
        ([{"updated_at": "2025-02-01T00:00:00Z"}], ["100", "101"]),
        ([{"updated_at": "2026-02-01T00:00:00Z", "was_cancelled": True}], ["100", "101"]),
        (
            [
                {"updated_at": "2025-02-01T00:00:00Z", "ground_truth": True},
                {"updated_at": "2026-02-01T00:00:00Z"},
            ],
            ["other0"],
        ),
    ],
    ids=["newest", "oldest", "cancelled", "ground truth"],
)
def test_of_several_annotations_the_ground_truth_counts_or_else_the_newest(
    tmp_path: Path, annotations: list[Mapping[str, Any]], expected: list[str]
) -> None:
    dataset = _with_annotations(tmp_path, annotations)

    names = [each.partition("#")[2] for each in dataset.sample_ids if "a.png" in each]
    assert names == expected
    is_repeated = not annotations[0].get("was_cancelled")
    assert any("annotated several times" in each for each in dataset.warnings) == is_repeated
    assert "2 images with predictions or drafts, which are not read" in dataset.warnings


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/data/upload/7/0123abcd-a.png", "a.png"),
        ("/data/upload/7/0123abcd-a.png", "images/0123abcd-a.png"),
        ("/data/local-files/?d=fruit/day%201/a.png", "day 1/a.png"),
        ("/data/local-files/?d=fruit%2Fday%2Fa.png", "fruit/day/a.png"),
        ("s3://bucket/fruit/a.png?x=1", "images/a.png"),
        ("http://localhost:8080/data/upload/7/0123abcd-a.png", "images/a.png"),
        ("C:\\fruit\\a.png", "a.png"),
    ],
)
def test_images_of_label_studio_are_found_beside_the_export(
    tmp_path: Path, address: str, path: str
) -> None:
    export = write_label_studio(tmp_path, SCENES[:1]) / "project-1.json"
    shutil.rmtree(tmp_path / "images")
    write_image(tmp_path / path, SCENES[0])
    write_image(tmp_path / "other/b.png", SCENES[1])
    tasks = _tasks(export)
    tasks[0]["data"] = {"note": "ripe", "picture": address}
    export.write_text(json.dumps(tasks))

    dataset = dataset_of(export)

    assert dataset.sample_ids == [f"{path}#100", f"{path}#101"]
    assert [shown(each) for each in read_samples(dataset).values()] == ["apple", "leaf"]


def test_an_image_that_could_be_several_is_none(tmp_path: Path) -> None:
    write_label_studio(tmp_path, SCENES[:1])
    shutil.move(tmp_path / "images", tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    ambiguous = read_samples(dataset_of(tmp_path))
    shutil.copytree(tmp_path / "one", tmp_path / "images")
    clear = read_samples(dataset_of(tmp_path))

    assert {*ambiguous.values()} == {
        "several images are called '0a1b2c3d-a.png': one/a.png, two/a.png"
    }
    assert [*clear] == ["images/a.png#100", "images/a.png#101"]


def test_outlines_and_labels_apart_from_their_boxes_stand_for_boxes(tmp_path: Path) -> None:
    path = write_label_studio(tmp_path / "label-studio", SCENES[:1]) / "project-1.json"
    tasks = _tasks(path)
    apple, leaf = tasks[0]["annotations"][0]["result"]
    outline = {"points": [[60, 30], [80, 30], [80, 80], [60, 80]], "polygonlabels": ["leaf"]}
    sides = {**apple["value"]}
    del sides["rectanglelabels"]
    tasks[0]["annotations"][0]["result"] = [
        apple | {"type": "rectangle", "value": sides},
        apple | {"type": "labels", "value": {**sides, "labels": ["apple"]}},
        leaf | {"type": "polygonlabels", "value": outline},
    ]
    path.write_text(json.dumps(tasks))
    xml = write_cvat(tmp_path / "cvat", SCENES[:1]) / "annotations.xml"
    start, end = xml.read_text().index('<box label="leaf"'), xml.read_text().rindex("</box>")
    polygon = '<polygon label="leaf" points="120.0,30.0;160.0,30.0;160.0,80.0;120.0,80.0"/>'
    xml.write_text(xml.read_text()[:start] + polygon + xml.read_text()[end + len("</box>") :])

    for folder in (path.parent, xml.parent):
        dataset = dataset_of(folder)
        contents = [*read_samples(dataset).values()]
        assert not dataset.skipped
        assert [shown(each) for each in contents] == ["apple", "leaf"]
        assert [dataset.class_names[each] for each in dataset.labels] == ["apple", "leaf"]


def test_subsets_of_cvat_are_splits_whose_images_are_in_their_folders(tmp_path: Path) -> None:
    path = write_cvat(tmp_path) / "annotations.xml"
    text = path.read_text()
    for name, subset in (("a", "Train"), ("b", "Test")):
        text = text.replace(f'name="{name}.png"', f'name="x.png" subset="{subset}"')
        (tmp_path / "images" / subset).mkdir()
        (tmp_path / f"images/{name}.png").rename(tmp_path / f"images/{subset}/x.png")
    path.write_text(text)

    train, every = dataset_of(tmp_path, split="Train"), dataset_of(path)

    assert train.sample_ids == ["images/Train/x.png#1", "images/Train/x.png#2"]
    assert len(every.sample_ids) == 7
    assert all(isinstance(each, bytes) for each in read_samples(every).values())
    assert train.revise is not None
    revision = train.revise({"images/Train/x.png#1": None, "images/Test/x.png#1": None})
    assert revision.unknown == ["images/Test/x.png#1"]
    with pytest.raises(DatasetError, match="no split 'val'"):
        dataset_of(tmp_path, split="val")


def test_several_exports_in_a_folder_are_chosen_by_name_and_one_has_no_splits(
    tmp_path: Path,
) -> None:
    write_label_studio(tmp_path)
    with pytest.raises(DatasetError, match="split"):
        dataset_of(tmp_path, split="train")
    shutil.copy(tmp_path / "project-1.json", tmp_path / "project-2.json")

    with pytest.raises(DatasetError, match="holds the splits"):
        dataset_of(tmp_path)
    assert len(dataset_of(tmp_path, split="project-2").sample_ids) == 7


def test_exports_without_regions_and_of_videos_are_not_taken_for_boxes(tmp_path: Path) -> None:
    folder = write_label_studio(tmp_path / "choices")
    path = folder / "project-1.json"
    path.write_text(path.read_text().replace("rectanglelabels", "choices"))
    xml = write_cvat(tmp_path / "video") / "annotations.xml"
    xml.write_text(xml.read_text().replace("<image ", "<track ").replace("</image>", "</track>"))

    assert recognition.detect_kind(str(folder)) == "image-folder"
    with pytest.raises(DatasetError, match="has tracks of a video; export it from CVAT as"):
        dataset_of(xml)


@pytest.mark.parametrize(
    "broken",
    ["[1]", '[{"data": 7, "annotations": []}]', '[{"data": {}, "annotations": [3]}]', "[{", "{}"],
)
def test_tasks_that_are_none_are_an_error_that_names_the_file(tmp_path: Path, broken: str) -> None:
    path = write_label_studio(tmp_path) / "project-1.json"
    text = path.read_text()
    path.write_text(text.rstrip()[:-1] + f", {broken[1:]}" if broken != "{}" else text + "x")
    if broken == "{}":  # what follows the list is not read, as in COCO
        assert len(dataset_of(path).sample_ids) == 7
        return

    with pytest.raises(DatasetError, match=r"'project-1.json' is damaged"):
        dataset_of(path)


def test_xml_that_is_damaged_declares_entities_or_is_wide_is_an_error(tmp_path: Path) -> None:
    path = write_cvat(tmp_path) / "annotations.xml"
    text = path.read_text()
    entity = text.replace("<annotations>", '<!DOCTYPE x [<!ENTITY e "e">]><annotations>')

    for broken in (text[:-30], entity, text.replace("<meta>", "<meta>" + "<a>" * 99)):
        path.write_text(broken)
        with pytest.raises(DatasetError, match=r"'annotations.xml' is damaged"):
            dataset_of(path)


def _as_others_write(folder: Path, labels: int = 0) -> Path:
    """A file as programs write it that convert to CVAT: without a version."""
    path = write_cvat(folder) / "annotations.xml"
    more = "".join(f"<label><name>more {number}</name></label>" for number in range(labels))
    text = path.read_text().replace("  <version>1.1</version>\n", "")
    path.write_text(text.replace("</labels>", f"{more}</labels>"))
    return path


@pytest.mark.parametrize("labels", [0, 500])
def test_cvat_of_other_programs_is_recognised_by_its_images(tmp_path: Path, labels: int) -> None:
    path = _as_others_write(tmp_path, labels)

    assert recognition.detect_kind(str(tmp_path)) == recognition.detect_kind(str(path)) == "cvat"
    dataset = dataset_of(tmp_path)
    assert len(dataset.sample_ids) == 7
    assert dataset.revise is not None
    (content,) = dataset.revise({dataset.sample_ids[0]: "plum"}).changed.values()
    assert isinstance(content, bytes)
    assert content.count(b'label="plum"') == path.read_bytes().count(b'label="plum"') + 1


@pytest.mark.parametrize(
    "text",
    [
        "<annotations><picture name='a.png'/></annotations>",
        "<annotations><image>a.png</image></annotations>",
        "<dataset><image name='a.png'/></dataset>",
    ],
)
def test_xml_about_something_else_is_not_of_cvat(tmp_path: Path, text: str) -> None:
    (tmp_path / "annotations.xml").write_text(text)
    write_image(tmp_path / "images/a.png", SCENES[0])

    assert recognition.detect_kind(str(tmp_path)) == "image-folder"
