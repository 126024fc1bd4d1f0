"""Folders around class folders: of splits, groups and parts, with labels or masks beside them."""

from pathlib import Path

import pytest

from difficulty_service.datasets.recognition import recognise
from difficulty_service.datasets.sample import UNLABELLED, DatasetOptions
from tests.dataset_files import dataset_of
from tests.difficulty_service.datasets.test_layouts import CLASSES, PNG, below, refused, write


@pytest.mark.parametrize("inside", ["images", "train", "a/b"])
def test_classes_are_found_below_the_only_folder_of_a_split(tmp_path: Path, inside: str) -> None:
    write(tmp_path, *below(f"train/{inside}"), *below(f"test/{inside}"))

    dataset = dataset_of(tmp_path, split="train")

    assert dataset.class_names == ("green", "red")
    assert dataset.sample_ids[0] == f"train/{inside}/green/3.png"


def test_the_table_beside_the_folder_of_the_splits_has_their_labels(tmp_path: Path) -> None:
    write(tmp_path, "jpeg/train/1.png", "jpeg/test/2.png", "train.csv")

    assert "probably in 'train.csv'" in refused(tmp_path, split="train")


@pytest.mark.parametrize("inside", ["train", "train/images"])
def test_the_table_of_a_split_is_named_however_deep_its_images_are(
    tmp_path: Path, inside: str
) -> None:
    write(tmp_path, f"train/{inside}/1.png", "test/test/2.png", "sample.csv", "train.csv")

    assert "probably in 'train.csv'" in refused(tmp_path, split="train")
    assert dataset_of(tmp_path, split="train", unlabelled=True).class_names == (UNLABELLED,)


def test_labels_of_a_split_in_a_file_that_is_no_table_are_to_be_written_as_one(
    tmp_path: Path,
) -> None:
    write(tmp_path, "train/1.png", "train/labels.json", "test/2.png")

    sentence = refused(tmp_path, split="train")

    assert "write a CSV with the columns path and label" in sentence
    assert "name that table" not in sentence


def test_annotations_of_a_split_are_named(tmp_path: Path) -> None:
    write(tmp_path, "train/1.png", "test/2.png")
    (tmp_path / "train" / "via.json").write_text(
        '{"1.png": {"regions": [{"shape_attributes": 1}]}}'
    )

    assert "VIA (VGG Image Annotator)" in refused(tmp_path, split="train")


@pytest.mark.parametrize("beside", ["bus/1.png", "more red/deep/1.png"])
def test_images_beside_the_only_split_are_not_left_out_silently(
    tmp_path: Path, beside: str
) -> None:
    write(tmp_path, *below("train"), "boat/1.png", beside)

    assert "is called as a split" in refused(tmp_path)
    assert dataset_of(tmp_path, split="train").class_names == ("green", "red")
    assert "train" in dataset_of(tmp_path, format="image-folder").class_names


def test_what_is_beside_images_without_labels_is_one_of_two_to_choose(tmp_path: Path) -> None:
    write(tmp_path, *below("labeled"), "unlabeled/9.png")

    assert "holds the splits" in refused(tmp_path)
    assert dataset_of(tmp_path, split="labeled").class_names == ("green", "red")


def test_images_without_labels_are_no_masks_of_others_with_equal_names(tmp_path: Path) -> None:
    names = [f"{folder}/{i}.png" for folder in ("red", "green", "unlabeled") for i in range(4)]
    write(tmp_path, *names)

    assert dataset_of(tmp_path).class_names == ("green", "red")


@pytest.mark.parametrize("name", ["mask", "gt", "segway", "labels on bottles"])
def test_a_class_called_as_masks_are_may_count_its_images_as_others_do(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path, *(f"{folder}/{i}.png" for folder in (name, "cup", "plate") for i in range(4)))

    assert set(dataset_of(tmp_path).class_names) == {name, "cup", "plate"}


def test_masks_beside_several_folders_of_images_are_no_class(tmp_path: Path) -> None:
    folders = ("left images", "right images", "masks")
    write(tmp_path, *(f"{folder}/{i}.png" for folder in folders for i in range(4)))

    assert "seems to have masks" in refused(tmp_path)


@pytest.mark.parametrize("pair", [("input", "target"), ("RGB", "depth"), ("HR", "LR")])
def test_pairs_of_images_with_equal_names_are_no_classes(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    write(tmp_path, *(f"{folder}/{i}.png" for folder in pair for i in range(4)))

    assert "pairs of one image each" in refused(tmp_path)
    assert set(dataset_of(tmp_path, format="image-folder").class_names) == set(pair)
    assert len(dataset_of(tmp_path / pair[0], unlabelled=True).sample_ids) == 4


def test_classes_called_as_pairs_are_classes_where_their_names_differ(tmp_path: Path) -> None:
    write(
        tmp_path,
        *(f"{folder}/{folder}_{i}.png" for folder in ("before", "after") for i in (1, 2, 3, 4)),
    )

    assert dataset_of(tmp_path).class_names == ("after", "before")


def test_classes_in_the_only_folder_with_images_are_found_beside_others(tmp_path: Path) -> None:
    write(
        tmp_path, *below("photos"), "annotations/red/outline_1.mat", "meta/classes.md", "readme.md"
    )

    dataset = dataset_of(tmp_path)

    assert dataset.class_names == ("green", "red")
    assert dataset.sample_ids[0] == "photos/green/3.png"
    assert ("meta", "a folder without images") in dataset.skipped


def test_labels_in_a_folder_beside_the_only_one_of_images_are_named(tmp_path: Path) -> None:
    write(tmp_path, "frames/1.png", "frames/2.png", "lists/classes.csv")

    sentence = refused(tmp_path)

    assert "'lists/classes.csv'" in sentence
    assert "write a CSV with the columns path and label" in sentence


def test_labels_beside_the_folders_around_the_only_one_are_named(tmp_path: Path) -> None:
    write(tmp_path, "faces/faces/1.png", "faces/faces/2.png", "attributes.csv")

    assert "'attributes.csv'" in refused(tmp_path)


@pytest.mark.parametrize("name", ["labels.mat", "list.txt"])
def test_labels_in_texts_and_arrays_beside_the_only_folder_are_seen(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path, "faces/1.png", "faces/2.png", "readme.txt")
    (tmp_path / name).write_text("1.png 1 -1\n2.png -1 1\n")

    sentence = refused(tmp_path)

    assert name in sentence
    assert dataset_of(tmp_path, format="image-folder").class_names == ("faces",)


def test_a_text_that_names_no_image_is_no_list_of_labels(tmp_path: Path) -> None:
    write(tmp_path, "faces/1.png", "faces/2.png", "readme.txt")

    assert dataset_of(tmp_path).class_names == ("faces",)


@pytest.mark.parametrize(
    ("groups", "inside"),
    [(("photo", "sketch"), ""), (("8863", "8864", "8865"), ""), (("amazon", "dslr"), "images/")],
)
def test_groups_with_the_same_classes_in_each_are_asked_about(
    tmp_path: Path, groups: tuple[str, ...], inside: str
) -> None:
    for group in groups:
        write(tmp_path, *below(f"{group}/{inside}".rstrip("/")))

    assert "the same folders" in refused(tmp_path)
    assert dataset_of(tmp_path / groups[0]).class_names == ("green", "red")
    assert dataset_of(tmp_path, format="image-folder").class_names == groups
    assert dataset_of(tmp_path, unlabelled=True).class_names == (UNLABELLED,)


def test_folders_of_different_names_in_classes_are_no_groups(tmp_path: Path) -> None:
    write(
        tmp_path, "cat/kittens/1.png", "cat/adults/2.png", "dog/puppies/3.png", "dog/adults/4.png"
    )

    assert dataset_of(tmp_path).class_names == ("cat", "dog")


@pytest.mark.parametrize("name", ["images_00{}", "HAM_images_part_{}", "fold{}"])
def test_parts_of_one_dataset_are_no_classes(tmp_path: Path, name: str) -> None:
    write(tmp_path, *(f"{name.format(i)}/{i}.png" for i in (1, 2, 3)))

    assert "parts of one dataset" in refused(tmp_path)


@pytest.mark.parametrize("name", ["class_{}", "person{}", "{}"])
def test_numbered_folders_are_classes(tmp_path: Path, name: str) -> None:
    write(tmp_path, *(f"{name.format(i)}/{i}.png" for i in (1, 2)))

    assert dataset_of(tmp_path).class_names == tuple(map(name.format, (1, 2)))


@pytest.mark.parametrize("name", ["7 ({})_mask", "7 ({})_mask_1"])
def test_masks_beside_the_images_of_a_class_are_no_samples(tmp_path: Path, name: str) -> None:
    for i in range(3):
        write(tmp_path, f"benign/7 ({i}).png", f"benign/{name.format(i)}.png", f"normal/{i}.png")

    assert "seem to be masks" in refused(tmp_path)
    assert len(dataset_of(tmp_path, format="image-folder").labels) == 9


def test_thumbnails_of_a_storage_are_no_class(tmp_path: Path) -> None:
    write(tmp_path, *CLASSES)
    (tmp_path / "@eaDir").mkdir()
    (tmp_path / "@eaDir" / "1.png").write_bytes(PNG)

    assert dataset_of(tmp_path).class_names == ("green", "red")


def test_the_classes_of_cub_200_are_its_folders_of_images(tmp_path: Path) -> None:
    write(tmp_path, *below("images", ("001.Albatross/a.jpg", "002.Auklet/b.jpg")))
    write(tmp_path, "classes.txt", "images.txt", "train_test_split.txt", "bounding_boxes.txt")
    write(tmp_path, "parts/parts.txt", "attributes/attributes.txt", "README")

    assert dataset_of(tmp_path).class_names == ("001.Albatross", "002.Auklet")


def test_lists_of_splits_beside_class_folders_are_no_boxes(tmp_path: Path) -> None:
    write(tmp_path, *below("images", ("banded/1.jpg", "dotted/2.jpg")))
    write(tmp_path, "labels/train1.txt", "imdb/imdb.mat")
    (tmp_path / "labels/train1.txt").write_text("banded/1.jpg\ndotted/2.jpg\n")

    assert recognise(str(tmp_path), DatasetOptions()).kind == "image-folder"
    assert dataset_of(tmp_path / "images").class_names == ("banded", "dotted")
