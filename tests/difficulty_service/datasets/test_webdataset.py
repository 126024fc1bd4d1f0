"""WebDataset tars: order, labels, damage, and members that cannot be images."""

import io
import json
import pickle
import tarfile
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, DuplicateSampleId, ImageError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions


def _write(path: Path, members: list[tuple[str, bytes]]) -> str:
    """Writes a tar, compressed if its extension is that of a compressed tar."""
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as tar:
        for name, data in members:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return str(path)


def _bytes(dataset: Dataset) -> list[bytes]:
    found = []
    for shard in range(dataset.num_shards):
        for sample in dataset.read_shard(shard):
            with sample.open() as file:
                found.append(file.read())
    return found


def _members(images: list[bytes], first: int = 0) -> list[tuple[str, bytes]]:
    members = []
    for number, image in enumerate(images, first):
        members += [(f"./a/{number:03}.png", image), (f"./a/{number:03}.cls", b"%d\n" % number)]
    return members


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz", "s.tgz"])
def test_members_of_one_key_are_one_sample(tmp_path: Path, images: list[bytes], name: str) -> None:
    path = _write(tmp_path / name, _members(images[:3]))

    dataset = open_dataset(path, DatasetOptions(shard_size=2))

    assert dataset.sample_ids == ["a/000", "a/001", "a/002"]
    assert dataset.labels.tolist() == [0, 1, 2]
    assert _bytes(dataset) == images[:3]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("shard_size", [1, 3, 4, 5, 50])
def test_all_shards_together_are_the_whole_dataset(
    tmp_path: Path, images: list[bytes], suffix: str, shard_size: int
) -> None:
    _write(tmp_path / f"0{suffix}", _members(images[:5]))
    _write(tmp_path / f"1{suffix}", _members(images[5:], first=5))

    dataset = open_dataset(str(tmp_path / f"*{suffix}"), DatasetOptions(shard_size=shard_size))

    assert _bytes(dataset) == images


def test_labels_come_from_json_with_the_name_of_the_class(
    tmp_path: Path, images: list[bytes]
) -> None:
    members = [
        ("1.jpg", images[1]),
        ("1.json", json.dumps({"label": 1, "label_name": "dog", "kind": "big"}).encode()),
        ("0.jpg", images[0]),
        ("0.json", json.dumps({"label": 0, "label_name": "cat", "kind": "small"}).encode()),
    ]
    path = _write(tmp_path / "s.tar", members)

    dataset = open_dataset(path, DatasetOptions())
    by_kind = open_dataset(path, DatasetOptions(label_column="kind"))

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [1, 0]
    assert by_kind.class_names == ("big", "small")


def test_text_labels_become_sorted_class_names(tmp_path: Path) -> None:
    members = [("1.jpg", b"x"), ("1.cls", b"dog"), ("2.jpg", b"x"), ("2.cls", b"cat")]

    dataset = open_dataset(_write(tmp_path / "s.tar", members), DatasetOptions())

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [1, 0]


@pytest.mark.parametrize("texts", [["007", "7"], ["4", "cat"], ["1E2", "2024-01-05"]])
def test_labels_that_are_not_all_numbers_are_classes_as_they_are_written(
    tmp_path: Path, texts: list[str]
) -> None:
    members = [("1.jpg", b"x"), ("1.cls", texts[0].encode())]
    members += [("2.jpg", b"x"), ("2.json", json.dumps({"label": texts[1]}).encode())]

    dataset = open_dataset(_write(tmp_path / "s.tar", members), DatasetOptions())

    assert dataset.class_names == tuple(sorted(texts))


def test_numbers_as_text_and_in_json_are_the_same_classes(tmp_path: Path) -> None:
    members = [("1.jpg", b"x"), ("1.cls", b"10"), ("2.jpg", b"x"), ("2.json", b'{"label": 9}')]
    members += [("3.jpg", b"x"), ("3.json", b'{"label": 10.0}')]

    dataset = open_dataset(_write(tmp_path / "s.tar", members), DatasetOptions())

    assert dataset.class_names == ("9", "10")
    assert dataset.labels.tolist() == [1, 0, 1]


def test_a_folder_with_a_tar_of_class_folders_is_told_to_name_the_tar(
    tmp_path: Path, images: list[bytes]
) -> None:
    path = _write(tmp_path / "s.tar", [("cat/1.jpg", images[0]), ("dog/2.jpg", images[1])])

    with pytest.raises(DatasetError, match="the folders in a tar are the classes, name that tar"):
        open_dataset(str(tmp_path), DatasetOptions())

    assert open_dataset(path, DatasetOptions()).class_names == ("cat", "dog")


def test_shards_without_any_label_name_the_ways_to_read_them(
    tmp_path: Path, images: list[bytes]
) -> None:
    members = [("1.jpg", images[0]), ("1.json", b'{"kind": 4}'), ("2.jpg", images[1])]
    path = _write(tmp_path / "s.tar", members)

    with pytest.raises(DatasetError, match=r"no sample with a label.*label_column.*unlabelled"):
        open_dataset(path, DatasetOptions())
    assert open_dataset(path, DatasetOptions(label_column="kind")).class_names == ("4",)
    assert len(open_dataset(path, DatasetOptions(unlabelled=True)).labels) == 2


@pytest.mark.parametrize("unlabelled", [False, True])
def test_a_tar_of_tars_is_told_to_be_unpacked(tmp_path: Path, *, unlabelled: bool) -> None:
    location = _write(tmp_path / "train.tar", [("n01.tar", b"1"), ("n02.tar", b"2")])

    with pytest.raises(DatasetError, match=r"holds 2 archives, such as 'n01\.tar'.*unpack it"):
        open_dataset(location, DatasetOptions(unlabelled=unlabelled))


def test_without_labels_each_key_with_an_image_is_a_sample(
    tmp_path: Path, images: list[bytes]
) -> None:
    members = [("1.jpg", images[0]), ("1.txt", b"a cat"), ("2.png", images[1])]
    members += [("2.json", b'{"width": 8}'), ("index.json", b"{}"), ("3.cls", b"4")]

    dataset = open_dataset(_write(tmp_path / "s.tar", members), DatasetOptions(unlabelled=True))

    assert dataset.sample_ids == ["1", "2"]
    assert _bytes(dataset) == images[:2]
    assert not dataset.has_labels
    assert [name for name, _ in dataset.skipped] == ["index", "3"]


def test_images_beside_the_one_that_is_read_are_told_in_one_sentence(
    tmp_path: Path, images: list[bytes]
) -> None:
    members = [("1.png", images[0]), ("1.jpg", images[1]), ("1.cls", b"0")]
    members += [("2.png", images[2]), ("2.seg.png", images[3]), ("2.cls", b"1")]

    dataset = open_dataset(_write(tmp_path / "s.tar", members), DatasetOptions())

    assert _bytes(dataset) == [images[0], images[2]]
    assert dataset.warnings == (
        "samples have more than one image, of which these are not read: .jpg (1), .seg.png (1)",
    )


def test_members_of_a_key_need_not_be_neighbours_and_a_mask_is_not_the_image(
    tmp_path: Path, images: list[bytes]
) -> None:
    members = [("1.seg.png", b"mask"), ("2.jpg", images[2]), ("1.jpg", images[1])]
    members += [("1.cls", b"1"), ("2.cls", b"0")]

    dataset = open_dataset(_write(tmp_path / "s.tar.gz", members), DatasetOptions())

    assert dataset.sample_ids == ["2", "1"]
    assert _bytes(dataset) == [images[2], images[1]]


def test_long_and_non_ascii_names_are_keys(tmp_path: Path, images: list[bytes]) -> None:
    key = "ordner/" + "ä" * 150
    members = [(f"{key}.jpg", images[0]), (f"{key}.cls", b"0")]

    dataset = open_dataset(_write(tmp_path / "s.tar", members), DatasetOptions())

    assert dataset.sample_ids == [key]
    assert _bytes(dataset) == [images[0]]


def test_a_key_in_two_tars_names_both(tmp_path: Path, images: list[bytes]) -> None:
    _write(tmp_path / "0.tar", _members(images[:1]))
    _write(tmp_path / "1.tar", _members(images[:1]))

    with pytest.raises(DuplicateSampleId, match=r"'a/000' in '0\.tar' and 'a/000' in '1\.tar'"):
        open_dataset(str(tmp_path), DatasetOptions())


def test_a_repeated_member_is_a_duplicate(tmp_path: Path, images: list[bytes]) -> None:
    path = _write(tmp_path / "0.tar", _members(images[:1]) * 2)

    with pytest.raises(DuplicateSampleId, match=r"two members a/000\.png"):
        open_dataset(path, DatasetOptions())


def test_samples_without_a_label_are_skipped_with_the_reason(
    tmp_path: Path, images: list[bytes]
) -> None:
    members = [
        *(("README.md", b"about"), ("0.jpg", images[0])),
        *(("1.jpg", images[1]), ("1.cls", b"4")),
        *(("2.jpg", images[2]), ("2.json", b"{")),
        *(("3.jpg", images[3]), ("3.json", b'{"label": null}')),
        *(("4.jpg", images[4]), ("4.json", b'{"label": [1]}')),
        *(("5.jpg", images[5]), ("5.cls", b"-1")),
        *(("6.jpg", images[6]), ("6.json", b'{"label": 2}')),
    ]

    dataset = open_dataset(_write(tmp_path / "s.tar", members), DatasetOptions())

    assert dataset.sample_ids == ["1", "6"]
    assert dataset.class_names == ("2", "4")
    assert dataset.labels.tolist() == [1, 0]
    assert _bytes(dataset) == [images[1], images[6]]
    reasons = dict(dataset.skipped)
    assert sorted(reasons) == ["0", "2", "3", "4", "5", "README"]
    assert reasons["0"].startswith("no label: no .cls member, and no .json with one of label,")
    assert reasons["2"] == "its .json member is not JSON"
    assert reasons["4"] == "the label is a list, not one label"
    assert reasons["5"] == "the label is -1"


def test_a_chosen_label_key_that_no_sample_has_is_an_error(
    tmp_path: Path, images: list[bytes]
) -> None:
    members = [("7.jpg", images[0]), ("7.json", b'{"label": 0}')]
    path = _write(tmp_path / "0.tar", members)

    with pytest.raises(
        DatasetError, match=r"no sample with a label; 1 entry .*no 'kind' in its \.json.*'7'"
    ):
        open_dataset(path, DatasetOptions(label_column="kind"))


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz"])
def test_links_devices_and_samples_without_an_image_raise_the_reason(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as tar:
        for key, kind in (("0", tarfile.SYMTYPE), ("1", tarfile.FIFOTYPE), ("2", None)):
            if kind is not None:
                header = tarfile.TarInfo(f"{key}.jpg")
                header.type, header.linkname = kind, "/etc/passwd"
                tar.addfile(header)
            header = tarfile.TarInfo(f"{key}.cls")
            header.size = 1
            tar.addfile(header, io.BytesIO(b"0"))

    link, pipe, without = open_dataset(str(path), DatasetOptions()).read_shard(0)

    with pytest.raises(ImageError, match="a link to '/etc/passwd'"):
        link.open()
    with pytest.raises(ImageError, match="not a regular file"):
        pipe.open()
    with pytest.raises(ImageError, match="no member with an image extension"):
        without.open()


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_a_truncated_tar_is_named(
    tmp_path: Path, images: list[bytes], name: str, keep: float
) -> None:
    path = Path(_write(tmp_path / name, _members(images)))
    with tarfile.open(path) as tar:
        end = sum(1024 for _ in tar) if name == "s.tar" else path.stat().st_size
    data = path.read_bytes()
    path.write_bytes(data[: int(end * keep)])

    with pytest.raises(DatasetError, match=r"s\.tar.* is damaged or truncated"):
        open_dataset(str(path), DatasetOptions())


def test_a_tar_cut_between_two_members_is_truncated(tmp_path: Path, images: list[bytes]) -> None:
    path = Path(_write(tmp_path / "s.tar", _members(images)))
    path.write_bytes(path.read_bytes()[: 4 * 1024])

    with pytest.raises(DatasetError, match="no end-of-archive mark"):
        open_dataset(str(path), DatasetOptions())


def test_a_damaged_header_is_not_treated_as_the_end(tmp_path: Path, images: list[bytes]) -> None:
    path = Path(_write(tmp_path / "s.tar", _members(images)))
    data = bytearray(path.read_bytes())
    data[4 * 1024 : 4 * 1024 + 8] = b"\xff" * 8
    path.write_bytes(data)

    with pytest.raises(DatasetError, match="damaged"):
        open_dataset(str(path), DatasetOptions())


def test_order_ids_and_fingerprint_are_the_same_on_each_opening_and_elsewhere(
    tmp_path: Path, images: list[bytes]
) -> None:
    (tmp_path / "other").mkdir()
    one = open_dataset(_write(tmp_path / "s.tar", _members(images)), DatasetOptions())
    two = open_dataset(_write(tmp_path / "other/s.tar", _members(images)), DatasetOptions())

    assert one.sample_ids == two.sample_ids
    assert one.fingerprint == two.fingerprint


def test_a_webdataset_can_be_pickled_to_another_process(
    tmp_path: Path, images: list[bytes]
) -> None:
    dataset = open_dataset(_write(tmp_path / "s.tar", _members(images)), DatasetOptions())

    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own bytes

    assert _bytes(copy) == images
