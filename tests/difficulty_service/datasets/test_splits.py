"""How folders and files are named for splits, and which split a name means."""

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.splits import (
    choose_split,
    split_folders,
    split_of_file,
    split_of_folder,
)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
        ("Training", "train"),
        ("train_images", "train"),
        ("trainset", "train"),
        ("train2017", "train"),
        ("TestImages", "test"),
        ("images-val", "val"),
        ("validation", "val"),
        ("bullet_train", None),
        ("test tube", None),
        ("images", None),
        ("trains", None),
    ],
)
def test_a_folder_is_of_a_split_where_its_other_words_say_nothing(
    name: str, split: str | None
) -> None:
    assert split_of_folder(name) == split


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00002.parquet", "train"),
        ("data/sst2-validation-00000-of-00001.parquet", "val"),
        ("test.csv", "test"),
        ("labels.train.csv", None),
        ("contest.parquet", None),
        ("0000.parquet", None),
    ],
)
def test_the_split_of_a_file_is_a_word_of_its_stem(name: str, split: str | None) -> None:
    assert split_of_file(name) == split


def test_folders_that_differ_in_the_split_alone_are_splits() -> None:
    folders = ["WIDER_train", "WIDER_val", "bullet_train", "docs"]

    assert split_folders(folders) == {"WIDER_train": "train", "WIDER_val": "val"}


def test_one_folder_with_the_word_for_a_split_beside_others_is_none() -> None:
    assert split_folders(["bullet_train", "police_van"]) == {}


@pytest.mark.parametrize(
    ("asked", "found"),
    [("val", "valid"), ("validation", "valid"), ("valid", "valid"), ("tr", "train2017")],
)
def test_a_split_is_found_by_another_word_for_it_or_its_beginning(asked: str, found: str) -> None:
    assert choose_split(["train2017", "valid"], asked, "photos") == found


def test_several_splits_are_named_where_none_is_asked_for() -> None:
    with pytest.raises(DatasetError, match=r"holds the splits \['a', 'b'\]; choose one.*split='a'"):
        choose_split(["a", "b"], None, "photos")


def test_a_split_is_found_where_its_folders_have_a_name_of_their_own() -> None:
    assert choose_split(["obj_train_data", "obj_val_data"], "train", "x") == "obj_train_data"


def test_a_split_of_a_dataset_without_any_is_to_be_left_out() -> None:
    with pytest.raises(DatasetError, match=r"'photos' has no splits; leave out split"):
        choose_split([], "train", "photos")


def test_a_split_that_may_be_one_of_two_is_an_error() -> None:
    with pytest.raises(DatasetError, match=r"no split 'train'; choose one of"):
        choose_split(["train2014", "train2017"], "train", "photos")
