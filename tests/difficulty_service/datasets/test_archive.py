"""Tars and zips of class folders, read in place."""

import pickle
import zipfile
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.recognition import detect_kind
from difficulty_service.datasets.sample import TableLimits
from tests.dataset_files import (
    IMAGES,
    Pack,
    dataset_of,
    photos,
    read_samples,
    write_tar,
    write_zip,
)


@pytest.mark.parametrize("prefix", ["", "./", "photos/", "./photos/"])
def test_class_folders_may_be_inside_a_single_folder(pack: Pack, prefix: str) -> None:
    members = photos(prefix)

    dataset = dataset_of(pack(members), shard_size=3)

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 0, 1, 1]
    assert read_samples(dataset) == {name.removeprefix("./"): image for name, image in members}


def test_a_split_is_one_of_the_folders(pack: Pack) -> None:
    location = pack(photos("train/") + photos("test/", IMAGES[4:]))

    dataset = dataset_of(location, split="test")

    assert sorted(read_samples(dataset).values()) == sorted(IMAGES[4:8])  # type: ignore[type-var]
    with pytest.raises(DatasetError, match="choose one"):
        dataset_of(location)


def test_files_that_are_not_images_raise_the_reason_and_hidden_files_are_ignored(
    pack: Pack,
) -> None:
    extra = [("cat/notes.txt", b"x"), ("cat/.DS_Store", b"x"), ("__MACOSX/cat/._2.png", b"x")]

    found = read_samples(dataset_of(pack(photos() + extra)))

    assert len(found) == 5
    assert "extension '.txt'" in str(found["cat/notes.txt"])


def test_stored_and_zip64_members_are_read(tmp_path: Path) -> None:
    location = write_zip(tmp_path / "stored.zip", photos(), zipfile.ZIP_STORED)
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as opened:
        for name, data in photos():
            with opened.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member.write(data)

    stored = dataset_of(location)
    large = dataset_of(tmp_path / "large.zip")

    assert read_samples(stored) == read_samples(large) == dict(photos())


def test_an_archive_can_be_pickled_to_another_process(pack: Pack) -> None:
    dataset = dataset_of(pack(photos()))

    opener = pickle.loads(pickle.dumps(next(dataset.read_shard(0)).open))  # noqa: S301

    assert opener().read() == IMAGES[1]


def test_a_tar_is_a_webdataset_where_label_files_are_beside_its_images(tmp_path: Path) -> None:
    shard = [("a/1.png", IMAGES[0]), ("a/2.png", IMAGES[1]), ("a/2.cls", b"0"), ("a/1.cls", b"1")]
    flat = [("1.png", IMAGES[0])]
    stray = [("meta.json", b"{}"), *photos(), ("cat/notes.json", b"{}")]

    kinds = [
        detect_kind(write_tar(tmp_path / f"{number}.tar", members))
        for number, members in enumerate([shard, flat, stray])
    ]

    assert kinds == ["webdataset", "archive", "archive"]


def test_a_compressed_tar_is_read_in_its_own_order_and_says_what_is_faster(tmp_path: Path) -> None:
    members = [*photos(), ("cat/notes.txt", b"about")]
    location = write_tar(tmp_path / "photos.tar.gz", members)

    dataset = dataset_of(location, shard_size=2)

    assert list(dataset.sample_ids) == [name for name, _ in members]
    names = [dataset.class_names[label] for label in dataset.labels.tolist()]
    assert names == [name.partition("/")[0] for name, _ in members]
    found = read_samples(dataset)
    assert "not an image" in str(found.pop("cat/notes.txt"))
    assert found == dict(members[:-1])
    assert "'photos.tar.gz' is compressed as a whole" in dataset.warnings[0]


def test_a_compressed_tar_that_changes_after_it_was_listed_is_an_error(tmp_path: Path) -> None:
    location = Path(write_tar(tmp_path / "photos.tar.gz", photos()))
    dataset = dataset_of(location)

    location.write_bytes(location.read_bytes()[:100])

    with pytest.raises(DatasetError, match="is damaged or has changed"):
        list(dataset.read_shard(0))


def test_a_tar_compressed_as_a_whole_of_other_people_is_refused_with_an_alternative(
    tmp_path: Path,
) -> None:
    location = write_tar(tmp_path / "photos.tar.gz", photos())

    with pytest.raises(DatasetError, match=r"uncompressed \.tar, or a \.zip"):
        dataset_of(location, limits=TableLimits(1000, 1000))


def test_two_archives_are_not_one_dataset(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_zip(tmp_path / name, photos())

    with pytest.raises(DatasetError, match="matches 2 archives"):
        dataset_of(tmp_path / "*.zip")
