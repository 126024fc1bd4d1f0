"""Datasets with a folder per class: samples, errors, and entries that must not block."""

import os
import pickle
import shutil
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets.folder_tree import SAMPLES_FILE
from difficulty_service.datasets.sample import Dataset
from tests.dataset_files import IMAGES, dataset_of


def _reason(dataset: Dataset, sample_id: str) -> str:
    """The reason why one sample cannot be opened."""
    (sample,) = [s for s in dataset.read_shard(0) if s.sample_id == sample_id]
    with pytest.raises(ImageError) as caught:
        sample.open()
    return str(caught.value)


def test_classes_are_the_sorted_sub_folders_and_ids_the_paths_below_the_dataset(
    class_folders: Path,
) -> None:
    dataset = dataset_of(class_folders)

    assert dataset.class_names == ("cat", "dog")
    assert dataset.sample_ids == ["cat/2.png", "cat/old/1.png", "dog/a.JPG", "dog/b.png"]
    assert dataset.labels.tolist() == [0, 0, 1, 1]


def test_an_opener_gives_the_bytes_of_the_file(class_folders: Path) -> None:
    dataset = dataset_of(class_folders)

    sample = list(dataset.read_shard(0))[-1]

    with sample.open() as file:
        assert file.read() == IMAGES[0]


def test_ids_and_fingerprint_stay_when_the_folder_moves(class_folders: Path) -> None:
    before = dataset_of(class_folders)
    moved = class_folders.parent / "elsewhere" / "copy"
    shutil.copytree(class_folders, moved)

    after = dataset_of(moved)

    assert after.sample_ids == before.sample_ids
    assert after.fingerprint == before.fingerprint


def test_the_fingerprint_changes_with_the_size_of_a_file(class_folders: Path) -> None:
    before = dataset_of(class_folders).fingerprint
    with (class_folders / "cat/2.png").open("ab") as file:
        file.write(b"x")

    after = dataset_of(class_folders).fingerprint

    assert after != before


def test_an_entry_that_cannot_be_an_image_is_a_sample_that_raises_the_reason(
    class_folders: Path,
) -> None:
    cat = class_folders / "cat"
    (cat / "notes.txt").write_text("hello")
    (cat / "README").write_text("hello")
    (cat / "folder.png").mkdir()
    (cat / "folder.png" / "inside.png").write_bytes(b"")
    (cat / "empty").mkdir()
    (cat / "broken.png").symlink_to("nowhere.png")
    (cat / "loop").symlink_to(cat)
    os.mkfifo(cat / "pipe.png")
    os.mkfifo(cat / "pipe")

    dataset = dataset_of(class_folders)

    assert len(dataset.sample_ids) == 12
    assert _reason(dataset, "cat/notes.txt") == "not an image file by its extension '.txt'"
    assert _reason(dataset, "cat/README") == "not an image file: its name has no extension"
    assert _reason(dataset, "cat/folder.png") == "a directory, not an image file"
    assert _reason(dataset, "cat/empty") == "a directory, not an image file"
    assert _reason(dataset, "cat/broken.png") == "a broken symbolic link"
    assert _reason(dataset, "cat/loop") == "a directory, not an image file"
    assert _reason(dataset, "cat/pipe.png") == "not a regular file"
    assert _reason(dataset, "cat/pipe") == "not a regular file"


def test_hidden_files_and_metadata_of_file_managers_are_ignored(class_folders: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._2.png"):
        (class_folders / "cat" / name).write_bytes(b"x")
    (class_folders / ".git").mkdir()

    dataset = dataset_of(class_folders)

    assert len(dataset.sample_ids) == 4


def test_a_class_may_be_a_symbolic_link_to_a_folder(class_folders: Path, tmp_path: Path) -> None:
    (class_folders / "cat").rename(tmp_path / "cats")
    (class_folders / "cat").symlink_to(tmp_path / "cats")

    dataset = dataset_of(class_folders)

    assert dataset.sample_ids[:2] == ["cat/2.png", "cat/old/1.png"]


def test_folders_that_link_to_each_other_do_not_loop(class_folders: Path) -> None:
    (class_folders / "cat" / "to_dog").symlink_to(class_folders / "dog")
    (class_folders / "dog" / "to_cat").symlink_to(class_folders / "cat")

    dataset = dataset_of(class_folders)

    assert "cat/to_dog/to_cat" in dataset.sample_ids


def test_a_name_that_is_not_unicode_is_escaped_and_can_be_opened(class_folders: Path) -> None:
    path = os.fsencode(class_folders) + b"/cat/caf\xe9.png"
    with open(path, "wb") as file:  # noqa: PTH123 - a Path cannot hold these bytes
        file.write(b"content")

    dataset = dataset_of(class_folders)

    sample = next(s for s in dataset.read_shard(0) if "caf" in s.sample_id)
    assert sample.sample_id == "cat/caf\\xe9.png"
    with sample.open() as opened:
        assert opened.read() == b"content"


def test_what_is_beside_the_classes_and_empty_classes_are_skipped_with_a_reason(
    class_folders: Path,
) -> None:
    before = dataset_of(class_folders)
    (class_folders / "README.md").write_text("about")
    (class_folders / "stray.png").write_bytes(b"")
    (class_folders / "folder.png").mkdir()

    dataset = dataset_of(class_folders)

    assert dataset.sample_ids == before.sample_ids
    assert dataset.fingerprint == before.fingerprint
    assert list(dataset.skipped) == [
        ("README.md", "a file outside the class folders"),
        ("folder.png", "a folder with the extension of an image"),
        ("stray.png", "an image outside the class folders"),
    ]
    assert "1 entry is skipped (an image outside the class folders): 'stray.png'" in (
        dataset.warnings
    )


def test_a_folder_without_class_folders_and_images_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")

    with pytest.raises(DatasetError, match="no class folders"):
        dataset_of(tmp_path)


def test_an_empty_class_folder_is_no_class_and_listed_as_skipped(class_folders: Path) -> None:
    (class_folders / "cow").mkdir()
    (class_folders / "鳥").mkdir()
    (class_folders / "鳥" / ".DS_Store").write_bytes(b"x")

    dataset = dataset_of(class_folders)

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 0, 1, 1]
    assert dataset.warnings == ("2 entries are skipped (an empty class folder): 'cow', '鳥'",)


def test_empty_class_folders_alone_are_an_error_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "cow").mkdir()

    with pytest.raises(DatasetError, match=r"no samples; 1 entry is skipped .*: 'cow'"):
        dataset_of(tmp_path)


def test_a_split_is_a_folder_above_the_classes_and_part_of_the_ids(class_folders: Path) -> None:
    shutil.copytree(class_folders, class_folders.parent / "both" / "train")
    both = shutil.copytree(class_folders, class_folders.parent / "both" / "val").parent

    dataset = dataset_of(both, split="val")

    assert dataset.class_names == ("cat", "dog")
    assert dataset.sample_ids[0] == "val/cat/2.png"
    with pytest.raises(DatasetError, match="split='train'"):
        dataset_of(both)
    with pytest.raises(DatasetError, match=r"no sub-folder 'test'; it has \['train', 'val'\]"):
        dataset_of(both, split="test")


def test_an_option_for_tables_is_refused(class_folders: Path) -> None:
    with pytest.raises(DatasetError, match="image_column does not apply to a folder"):
        dataset_of(class_folders, image_column="image")


def test_a_dataset_can_be_pickled_to_another_process(class_folders: Path) -> None:
    dataset = dataset_of(class_folders, shard_size=3)

    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own bytes

    (sample,) = copy.read_shard(1)
    with sample.open() as file:
        assert file.read() == IMAGES[0]


def test_a_single_class_with_the_lists_of_a_cleaned_dataset_is_read(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(IMAGES[0])
    (tmp_path / SAMPLES_FILE).write_text("sample_id,label,path\n")

    dataset = dataset_of(tmp_path)

    assert dataset.class_names == ("cat",)
