"""YOLO as people and tools lay it out: where texts are, the images of a split, and the classes."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from difficulty_service.base.errors import CleaningError, DatasetError
from difficulty_service.datasets import recognition
from tests.boxed_images import CATEGORIES, SCENES, shown, write_image, write_yolo
from tests.dataset_files import dataset_of, read_samples

APPLE = "0 0.150000 0.400000 0.200000 0.400000\n"
"""The apple of the first scene."""

LEAF = "1 0.700000 0.550000 0.200000 0.500000\n"
"""Its leaf."""


def _write(folder: Path, files: Mapping[str, str]) -> Path:
    """Writes texts, and the first scene where a name is that of an image."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".png"):
            write_image(path, SCENES[0])
        else:
            path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("images/a.png", "images/a.txt"),
        ("images/train/a.png", "images/train/a.txt"),
        ("images/site/images/a.png", "images/site/labels/a.txt"),
        ("images/site/images/a.png", "labels/site/images/a.txt"),
        ("images/site/images/a.png", "labels/site/labels/a.txt"),
        ("Images/a.png", "Labels/a.txt"),
        ("images/a.png", "Labels/a.txt"),
        ("a.png", "labels/a.txt"),
        ("train/a.png", "labels/train/a.txt"),
        ("a.png", "a.txt"),
    ],
)
def test_the_text_of_an_image_is_found_wherever_tools_put_it(
    tmp_path: Path, image: str, text: str
) -> None:
    files = {image: "", text: APPLE, "data.yaml": "names: [apple]\nnc: 1\ntrain: .\n"}
    named = dataset_of(_write(tmp_path / "named", files))
    found = [shown(each) for each in read_samples(named).values()]

    assert named.sample_ids == [f"{image}#1"]
    assert found == ["apple"]
    assert not named.skipped


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("images/a.png", "images/a.txt"),
        ("images/a.png", "labels/a.txt"),
        ("Images/a.png", "Labels/a.txt"),
        ("images/day/a.png", "images/day/a.txt"),
        ("a.png", "a.txt"),
    ],
)
def test_boxes_without_a_file_about_them_are_recognised(
    tmp_path: Path, image: str, text: str
) -> None:
    folder = _write(tmp_path, {image: "", text: APPLE})

    assert recognition.detect_kind(str(folder)) == "yolo"
    assert len(dataset_of(folder).sample_ids) == 1


def test_descriptions_beside_images_are_no_boxes(tmp_path: Path) -> None:
    files = {"images/a.png": "", "images/a.txt": "a red apple", "labels/a.txt": APPLE}

    assert dataset_of(_write(tmp_path / "both", files)).sample_ids == ["images/a.png#1"]
    del files["labels/a.txt"]
    folder = _write(tmp_path / "alone", files)
    assert recognition.detect_kind(str(folder)) == "image-folder"


@pytest.mark.parametrize(
    "text", ["12 40 33 41 60 44", "0.5 0.1 0.2 0.3 0.4", "0 120 40 160 80", "ripe 1 2 3 4"]
)
def test_numbers_beside_images_that_are_no_shares_of_them_do_not_make_boxes_of_a_table(
    tmp_path: Path, text: str
) -> None:
    files = {"images/a.png": "", "images/a.txt": text, "labels.csv": "path,label\nimages/a.png,x"}

    assert recognition.detect_kind(str(_write(tmp_path, files))) != "yolo"


KITTI = "apple 0.00 0 -10 20.00 20.00 60.00 60.00 -1 -1 -1 -1000 -1000 -1000 -10\n"
DOTA = "20 20 60 20 60 60 20 60 apple 0\n"


@pytest.mark.parametrize("text", [KITTI, DOTA], ids=["KITTI", "DOTA"])
@pytest.mark.parametrize("folder", ["", "train/"])
def test_texts_of_another_format_are_not_of_yolo_whatever_their_folder_is_called(
    tmp_path: Path, folder: str, text: str
) -> None:
    files = {
        f"{folder}images/a.png": "",
        f"{folder}labels/a.txt": "",
        f"{folder}labels/b.txt": text,
    }

    kind = recognition.detect_kind(str(_write(tmp_path / "other", files)))
    files[f"{folder}labels/a.txt"] = APPLE
    damaged = recognition.detect_kind(str(_write(tmp_path / "damaged", files)))

    assert kind == "image-folder"
    assert damaged == "yolo"


def test_an_image_with_two_texts_that_differ_is_listed_and_others_are_read(tmp_path: Path) -> None:
    files = dict.fromkeys((f"images/{name}.png" for name in "abc"), "")
    files |= {"images/a.txt": APPLE, "labels/a.txt": LEAF}
    files |= {"images/b.txt": APPLE, "labels/b.txt": APPLE.rstrip(), "labels/c.txt": LEAF}

    dataset = dataset_of(_write(tmp_path, files))

    assert dataset.sample_ids == ["images/b.png#1", "images/c.png#1"]
    assert dataset.skipped == [
        ("images/a.png", "its boxes are in texts that differ: labels/a.txt, images/a.txt")
    ]


@pytest.mark.parametrize("name", ["train", "val", "valid", "test", "classes"])
def test_an_image_called_like_a_list_keeps_its_boxes(tmp_path: Path, name: str) -> None:
    files = {f"{name}.png": "", f"{name}.txt": APPLE, "b.png": "", "b.txt": LEAF}
    beside = dataset_of(_write(tmp_path / "beside", files | {"obj.names": "apple\nleaf\n"}))
    apart = _write(tmp_path / "apart", {})
    for path, text in files.items():
        _write(apart, {f"{'images' if path.endswith('png') else 'labels'}/{path}": text})

    assert beside.sample_ids == ["b.png#1", f"{name}.png#1"]
    assert beside.class_names == ("apple", "leaf")
    assert dataset_of(apart).sample_ids == ["images/b.png#1", f"images/{name}.png#1"]


def test_a_list_beside_an_image_of_its_name_is_still_a_list(tmp_path: Path) -> None:
    files = {"train.png": "", "a.png": "", "a.txt": APPLE, "train.txt": "a.png\n"}
    files["data.yaml"] = "names: [apple]\ntrain: train.txt\n"

    assert dataset_of(_write(tmp_path, files)).sample_ids == ["a.png#1"]


def test_a_mark_of_the_encoding_belongs_to_no_line_name_or_path(tmp_path: Path) -> None:
    mark = "\ufeff"
    files = {"images/a.png": "", "labels/a.txt": mark + APPLE + LEAF, "images/b.png": ""}
    files["labels/b.txt"] = LEAF
    names = _write(tmp_path / "names", files | {"classes.txt": f"{mark}apple\nleaf\n"})
    files["data.yaml"] = f"{mark}names: [apple, leaf]\ntrain: train.txt\n"
    lists = _write(tmp_path / "lists", files | {"train.txt": f"{mark}images/a.png\n"})

    for folder, number in ((names, 3), (lists, 2)):
        dataset = dataset_of(folder)
        assert dataset.class_names == ("apple", "leaf")
        assert len(dataset.sample_ids) == number
        assert not dataset.skipped
        assert dataset.revise is not None
        revision = dataset.revise({"images/a.png#1": "leaf"})
        text = bytes(revision.changed["labels/a.txt"])  # type: ignore[arg-type]
        assert text.decode() == mark + "1" + APPLE[1:] + LEAF


NESTED = "kpt_names:\n  0: [nose, eye]\nroboflow: {license: {id: [1, 2]}}\naugment: [{flip: 1}]\n"


def test_keys_of_data_yaml_that_are_not_used_may_hold_anything(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    with (folder / "data.yaml").open("a") as file:
        file.write(f"{NESTED}kpt_shape: [2, 3]\n")
    points = " 0.1 0.1 2 0.9 0.9 1\n"
    (folder / "labels/train/a.txt").write_text(APPLE.rstrip() + points)

    dataset = dataset_of(folder)

    assert dataset.class_names == CATEGORIES
    assert dataset.scenes is not None
    assert dataset.scenes.sides[0].tolist() == pytest.approx([0.05, 0.2, 0.25, 0.6])


def test_classes_of_data_yaml_are_called_as_they_are_written(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    (folder / "data.yaml").write_text("train: images/train\nnames: [yes, 007, 1_0]\n")

    assert dataset_of(folder).class_names == ("yes", "007", "1_0")


@pytest.mark.parametrize("name", ["data.yaml", "data.yml", "fruit.yaml"])
def test_a_data_yaml_without_splits_names_the_classes(tmp_path: Path, name: str) -> None:
    files = {"images/a.png": "", "labels/a.txt": LEAF, name: "names:\n- apple\n- leaf\nnc: 2\n"}
    folder = _write(tmp_path, files)

    for location in (folder, folder / name):
        dataset = dataset_of(location)
        assert dataset.class_names == ("apple", "leaf")
        assert dataset.labels.tolist() == [1]
        assert dataset.revise is not None
        revision = dataset.revise({"images/a.png#1": "plum"})
        assert revision.changed[name] == b'names:\n- apple\n- leaf\n- "plum"\nnc: 3\n'


def test_a_number_of_classes_without_names_makes_them_up_as_ultralytics_does(
    tmp_path: Path,
) -> None:
    files = {"images/a.png": "", "labels/a.txt": LEAF, "data.yaml": "nc: 3\ntrain: images\n"}
    folder = _write(tmp_path, files)
    dataset = dataset_of(folder)
    assert dataset.class_names == ("class_0", "class_1", "class_2")
    assert dataset.revise is not None
    with pytest.raises(CleaningError, match=r"write them into data\.yaml as names"):
        dataset.revise({"images/a.png#1": "plum"})

    _write(folder, {"classes.txt": "apple\nleaf\nplum\n"})
    named = dataset_of(folder)
    assert named.class_names == CATEGORIES
    assert named.revise is not None
    changed = named.revise({"images/a.png#1": "kiwi"}).changed
    assert changed["classes.txt"] == b"apple\nleaf\nplum\nkiwi\n"
    assert changed["data.yaml"] == b"nc: 4\ntrain: images\n"


def test_a_number_of_classes_beyond_all_reason_is_none(tmp_path: Path) -> None:
    files = {"images/a.png": "", "labels/a.txt": LEAF, "data.yaml": "nc: 999999999\ntrain: images"}

    assert dataset_of(_write(tmp_path, files)).class_names == ("1",)


@pytest.mark.parametrize("key", ["val", "valid", "validation"])
def test_every_word_for_a_split_is_one_in_data_yaml(tmp_path: Path, key: str) -> None:
    folder = write_yolo(tmp_path, splits=("train", "held"))
    path = folder / "data.yaml"
    path.write_text(path.read_text().replace("held:", f"{key}:"))

    with pytest.raises(DatasetError, match="holds the splits"):
        dataset_of(folder)
    assert dataset_of(folder, split="validation").sample_ids[0] == "images/held/a.png#1"


def test_a_damaged_data_yaml_is_an_error_and_not_left_out(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    (folder / "data.yaml").write_text("names: [apple\ntrain: images/train\n")

    with pytest.raises(DatasetError, match=r"'data\.yaml' is damaged"):
        dataset_of(folder)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("train/images/a.png", "valid/images/a.png"),
        ("images/train2017/a.png", "images/val2017/a.png"),
        ("obj_train_data/a.png", "obj_valid_data/a.png"),
        ("obj_train_data/a.png", "obj_val_data/a.png"),
        ("train/a.png", "valid/a.png"),
    ],
)
def test_folders_of_splits_are_not_read_together(tmp_path: Path, first: str, second: str) -> None:
    files = {first: "", second: ""}
    for image, text in ((first, APPLE), (second, LEAF)):
        files[image.replace("images", "labels").replace(".png", ".txt")] = text
    folder = _write(tmp_path, files)

    assert recognition.detect_kind(str(folder)) == "yolo"
    with pytest.raises(DatasetError, match="holds the splits"):
        dataset_of(folder)
    assert dataset_of(folder, split="train").sample_ids == [f"{first}#1"]
    assert dataset_of(folder, split="val").sample_ids == [f"{second}#1"]


def _with_lists(folder: Path) -> Path:
    files = dict.fromkeys((f"obj/{name}.png" for name in "abcd"), "")
    files |= dict.fromkeys((f"obj/{name}.txt" for name in "abcd"), APPLE)
    files |= {"train.txt": "data/obj/a.png\ndata\\obj\\gone.png\n", "valid.txt": "data/obj/b.png"}
    return _write(folder, files | {"obj.names": "apple\nleaf\n"})


def test_lists_that_obj_data_names_are_splits(tmp_path: Path) -> None:
    folder = _with_lists(tmp_path)
    text = "classes = 2\ntrain = data/train.txt\nvalid = data/valid.txt\nnames = x/obj.names\n"
    (folder / "obj.data").write_text(text)

    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'valid'\]"):
        dataset_of(folder)
    train = dataset_of(folder / "obj.data", split="train")

    assert train.sample_ids == ["obj/a.png#1"]
    assert train.class_names == ("apple", "leaf")
    assert train.skipped == [
        ("data/obj/gone.png", "it is in 'train.txt', and no such image is there")
    ]
    assert "2 images in no list (train.txt, valid.txt): not read" in train.warnings
    assert dataset_of(folder, split="val").sample_ids == ["obj/b.png#1"]
    assert train.revise is not None
    changed = train.revise({"obj/a.png#1": "plum"}).changed
    assert changed == {
        "obj/a.txt": b"2" + APPLE[1:].encode(),
        "obj.names": b"apple\nleaf\nplum\n",
    }


def test_lists_of_images_beside_them_are_splits_without_a_file_that_says_so(tmp_path: Path) -> None:
    folder = _with_lists(tmp_path)

    with pytest.raises(DatasetError, match="holds the splits"):
        dataset_of(folder)
    assert dataset_of(folder, split="valid").sample_ids == ["obj/b.png#1"]


def test_a_list_of_images_that_are_not_there_is_an_error(tmp_path: Path) -> None:
    folder = _with_lists(tmp_path)
    (folder / "valid.txt").write_text("else/where.png\n")

    with pytest.raises(DatasetError, match=r"none of the images in 'valid\.txt' is there"):
        dataset_of(folder, split="valid")


def test_files_that_name_classes_differently_are_an_error_until_one_is_gone(tmp_path: Path) -> None:
    files = {"images/a.png": "", "labels/a.txt": LEAF, "classes.txt": "apple\nleaf\n"}
    folder = _write(tmp_path, files | {"labels/classes.txt": "dog\ncat\nhen\n"})
    with pytest.raises(DatasetError, match="name the classes differently; take the one"):
        dataset_of(folder)

    (folder / "labels/classes.txt").unlink()

    assert dataset_of(folder).class_names == ("apple", "leaf")


def test_a_split_of_a_dataset_without_any_is_refused_with_what_works(tmp_path: Path) -> None:
    folder = _write(tmp_path, {"images/a.png": "", "labels/a.txt": LEAF})

    with pytest.raises(DatasetError, match="has no splits; leave out split"):
        dataset_of(folder, split="train")
    assert len(dataset_of(folder).sample_ids) == 1


def test_images_beside_folders_of_splits_are_counted(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path, splits=("train", "val"))
    (folder / "data.yaml").unlink()
    shutil.copy(folder / "images/train/a.png", folder / "images/x.png")

    dataset = dataset_of(folder, split="train")

    assert "1 image in no folder of a split: not read" in dataset.warnings
    assert len(dataset.sample_ids) == 7


def test_the_folder_of_darknet_is_read_by_what_is_in_data(tmp_path: Path) -> None:
    files = {"data/obj/a.png": "", "data/obj/a.txt": LEAF, "data/train.txt": "data/obj/a.png\n"}
    files |= {"data/obj.data": "train = data/train.txt\nnames = data/obj.names\n"}
    folder = _write(tmp_path, files | {"data/obj.names": "apple\nleaf\n", "cfg/yolo.cfg": "[net]"})

    dataset = dataset_of(folder)

    assert dataset.sample_ids == ["data/obj/a.png#1"]
    assert dataset.class_names == ("apple", "leaf")
