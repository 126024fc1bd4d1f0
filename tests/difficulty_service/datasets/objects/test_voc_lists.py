"""Lists of Pascal VOC, and images without a file of annotations."""

import shutil
from pathlib import Path

import pytest

from difficulty_service.analyses.missing_boxes.find import find_windows
from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import recognition
from difficulty_service.datasets.sample import Dataset
from difficulty_service.settings.command_options import MissingOptions
from tests.boxed_images import write_voc
from tests.dataset_files import dataset_of

pytestmark = pytest.mark.analysis("missing_boxes")


def _images(dataset: Dataset) -> list[str]:
    """The images with boxes, in their order."""
    return list(dict.fromkeys(name.rpartition("#")[0] for name in dataset.sample_ids))


def _moved(folder: Path, name: str, path: str) -> None:
    """Moves an image and its annotations to another path."""
    for kind, extension in (("JPEGImages", "png"), ("Annotations", "xml")):
        target = folder / kind / f"{path}.{extension}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder / kind / f"{name}.{extension}", target)
    target.write_text(target.read_text().replace(f"{name}.png", f"{target.stem}.png"))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("my photo", "my photo"),
        ("my photo", "my photo  1"),
        ("day 1", "day 1"),
        ("day 1", "day 1 -1"),
        ("day1/x", "day1/x"),
        ("day1/x", "day1\\x.png"),
        ("day1/x", "JPEGImages/day1/x.png"),
        ("day1/x", "./day1/x.xml"),
        ("x", "\ufeffx"),
        ("x.v2", "x.v2"),
    ],
)
def test_a_line_of_a_list_is_the_path_of_an_image(tmp_path: Path, path: str, line: str) -> None:
    folder = write_voc(tmp_path)
    _moved(folder, "a", path)
    (folder / "ImageSets/Main/train.txt").write_text(f"{line}\n", encoding="utf-8")

    dataset = dataset_of(folder, split="train")

    assert _images(dataset) == [f"JPEGImages/{path}.png"]
    assert not dataset.skipped


def test_lists_of_a_class_are_no_splits_and_others_with_a_line_below_are(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    lists = folder / "ImageSets/Main"
    (lists / "train.txt").unlink()
    (lists / "apple_train.txt").write_text("a  1\nb -1\nc  0\n")
    (lists / "train_2024.txt").write_text("b\n")
    (lists / "day_val.txt").write_text("c 1\n")
    _moved(folder, "c", "c 1")

    with pytest.raises(DatasetError, match=r"choose one of \['day_val', 'train_2024'\]"):
        dataset_of(folder, split="apple_train")

    assert _images(dataset_of(folder, split="train_2024")) == ["JPEGImages/b.png"]
    assert _images(dataset_of(folder, split="day_val")) == ["JPEGImages/c 1.png"]


def test_lines_without_a_file_or_with_several_are_listed(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    _moved(folder, "a", "day1/x")
    _moved(folder, "b", "day2/x")
    (folder / "ImageSets/Main/train.txt").write_text("x\nc\ngone\nday3/c2\n")

    dataset = dataset_of(folder, split="train")

    assert _images(dataset) == ["JPEGImages/c.png"]
    file = "'ImageSets/Main/train.txt'"
    places = "Annotations/day1/x.xml, Annotations/day2/x.xml"
    assert dataset.skipped == [
        ("x", f"several files are called so in {file}: {places}"),
        ("gone", f"it is in {file}, and no such file is there"),
        ("day3/c2", f"it is in {file}, and no such file is there"),
    ]


def test_images_without_annotations_have_no_box_and_are_searched_for_missing_ones(
    tmp_path: Path,
) -> None:
    folder = write_voc(tmp_path)
    (folder / "Annotations/empty.xml").unlink()
    (folder / "SegmentationClass").mkdir()
    shutil.copy(folder / "JPEGImages/a.png", folder / "SegmentationClass/a.png")
    (folder / "JPEGImages/day2").mkdir()
    shutil.copy(folder / "JPEGImages/a.png", folder / "JPEGImages/day2/new.png")
    (folder / "ImageSets/Main/train.txt").write_text("a\nempty\n")

    every, train = dataset_of(folder), dataset_of(folder, split="train")

    assert every.scenes is not None
    assert train.scenes is not None
    bare = ["JPEGImages/day2/new.png", "JPEGImages/empty.png"]
    assert [*every.scenes.names[3:]] == bare
    assert "2 images have no box" in every.warnings
    assert [*train.scenes.names] == ["JPEGImages/a.png", "JPEGImages/empty.png"]
    windows = find_windows(train.scenes, MissingOptions(sample=10))
    assert {*windows.rows.tolist()} == {0, 1}


def test_an_image_whose_annotations_are_damaged_is_not_one_without_boxes(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    (folder / "Annotations/b.xml").write_text("<annotation><object>")

    dataset = dataset_of(folder)

    assert dataset.scenes is not None
    assert "JPEGImages/b.png" not in dataset.scenes.names


def test_a_split_is_refused_where_there_are_no_lists_or_none_of_boxes(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    (folder / "ImageSets/Main/val.txt").write_text("gone\n")
    with pytest.raises(DatasetError, match="has annotations; leave out split to read all"):
        dataset_of(folder, split="val")
    shutil.rmtree(folder / "ImageSets")

    with pytest.raises(DatasetError, match="no lists of splits in ImageSets/Main; leave out split"):
        dataset_of(folder, split="val")
    assert len(dataset_of(folder).sample_ids) == 7


OUTLINE = "<object><name>apple</name>{}<polygon><pt><x>1</x><y>1</y></pt></polygon></object>"


@pytest.mark.parametrize("folder", ["Annotations", "Annotations/train", "labels"])
def test_outlines_of_labelme_are_not_of_pascal_voc(tmp_path: Path, folder: str) -> None:
    texts = {"a": "<filename>a.png</filename>", "b": OUTLINE.format("")}
    (tmp_path / "Images").mkdir()
    (tmp_path / folder).mkdir(parents=True)
    for name, text in texts.items():
        path = tmp_path / folder / f"{name}.xml"
        path.write_text(f"<annotation>{text}</annotation>")

    other = recognition.detect_kind(str(tmp_path))
    path.write_text(f"<annotation>{OUTLINE.format('<bndbox></bndbox>')}</annotation>")
    with_boxes = recognition.detect_kind(str(tmp_path))
    path.unlink()
    without_objects = recognition.detect_kind(str(tmp_path))

    assert (other, with_boxes, without_objects) == ("image-folder", "voc", "voc")
