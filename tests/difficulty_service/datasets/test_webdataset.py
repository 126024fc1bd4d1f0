"""WebDataset tars: order, labels, damage, and members that cannot be images."""

import io
import json
import pickle
import tarfile
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, DuplicateSampleId, ImageError
from tests.dataset_files import IMAGES, contents_of, dataset_of, write_tar


def _members(images: list[bytes], first: int = 0) -> list[tuple[str, bytes]]:
    members = []
    for number, image in enumerate(images, first):
        members += [(f"./a/{number:03}.png", image), (f"./a/{number:03}.cls", b"%d\n" % number)]
    return members


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz", "s.tgz"])
def test_members_of_one_key_are_one_sample(tmp_path: Path, name: str) -> None:
    path = write_tar(tmp_path / name, _members(IMAGES[:3]))

    dataset = dataset_of(path, shard_size=2)

    assert dataset.sample_ids == ["a/000", "a/001", "a/002"]
    assert dataset.labels.tolist() == [0, 1, 2]
    assert contents_of(dataset) == IMAGES[:3]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("shard_size", [1, 3, 4, 5, 50])
def test_all_shards_together_are_the_whole_dataset(
    tmp_path: Path, suffix: str, shard_size: int
) -> None:
    write_tar(tmp_path / f"0{suffix}", _members(IMAGES[:5]))
    write_tar(tmp_path / f"1{suffix}", _members(IMAGES[5:], first=5))

    dataset = dataset_of(tmp_path / f"*{suffix}", shard_size=shard_size)

    assert contents_of(dataset) == IMAGES


def test_labels_come_from_json_with_the_name_of_the_class(tmp_path: Path) -> None:
    members = [
        ("1.jpg", IMAGES[1]),
        ("1.json", json.dumps({"label": 1, "label_name": "dog", "kind": "big"}).encode()),
        ("0.jpg", IMAGES[0]),
        ("0.json", json.dumps({"label": 0, "label_name": "cat", "kind": "small"}).encode()),
    ]
    path = write_tar(tmp_path / "s.tar", members)

    dataset = dataset_of(path)
    by_kind = dataset_of(path, label_column="kind")

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [1, 0]
    assert by_kind.class_names == ("big", "small")


def test_text_labels_become_sorted_class_names(tmp_path: Path) -> None:
    members = [("1.jpg", b"x"), ("1.cls", b"dog"), ("2.jpg", b"x"), ("2.cls", b"cat")]

    dataset = dataset_of(write_tar(tmp_path / "s.tar", members))

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [1, 0]


@pytest.mark.parametrize("texts", [["007", "7"], ["4", "cat"], ["1E2", "2024-01-05"]])
def test_labels_that_are_not_all_numbers_are_classes_as_they_are_written(
    tmp_path: Path, texts: list[str]
) -> None:
    members = [("1.jpg", b"x"), ("1.cls", texts[0].encode())]
    members += [("2.jpg", b"x"), ("2.json", json.dumps({"label": texts[1]}).encode())]

    dataset = dataset_of(write_tar(tmp_path / "s.tar", members))

    assert dataset.class_names == tuple(sorted(texts))


def test_numbers_as_text_and_in_json_are_the_same_classes(tmp_path: Path) -> None:
    members = [("1.jpg", b"x"), ("1.cls", b"10"), ("2.jpg", b"x"), ("2.json", b'{"label": 9}')]
    members += [("3.jpg", b"x"), ("3.json", b'{"label": 10.0}')]

    dataset = dataset_of(write_tar(tmp_path / "s.tar", members))

    assert dataset.class_names == ("9", "10")
    assert dataset.labels.tolist() == [1, 0, 1]


def test_a_folder_with_a_tar_of_class_folders_is_told_to_name_the_tar(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "s.tar", [("cat/1.jpg", IMAGES[0]), ("dog/2.jpg", IMAGES[1])])

    with pytest.raises(DatasetError, match="the folders in a tar are the classes, name that tar"):
        dataset_of(tmp_path)

    assert dataset_of(path).class_names == ("cat", "dog")


def test_shards_without_any_label_name_the_ways_to_read_them(tmp_path: Path) -> None:
    members = [("1.jpg", IMAGES[0]), ("1.json", b'{"kind": 4}'), ("2.jpg", IMAGES[1])]
    path = write_tar(tmp_path / "s.tar", members)

    with pytest.raises(DatasetError, match=r"no sample with a label.*label_column.*unlabelled"):
        dataset_of(path)
    assert dataset_of(path, label_column="kind").class_names == ("4",)
    assert len(dataset_of(path, unlabelled=True).labels) == 2


@pytest.mark.parametrize("unlabelled", [False, True])
def test_a_tar_of_tars_is_told_to_be_unpacked(tmp_path: Path, *, unlabelled: bool) -> None:
    location = write_tar(tmp_path / "train.tar", [("n01.tar", b"1"), ("n02.tar", b"2")])

    with pytest.raises(DatasetError, match=r"holds 2 archives, such as 'n01\.tar'.*unpack it"):
        dataset_of(location, unlabelled=unlabelled)


def test_without_labels_each_key_with_an_image_is_a_sample(tmp_path: Path) -> None:
    members = [("1.jpg", IMAGES[0]), ("1.txt", b"a cat"), ("2.png", IMAGES[1])]
    members += [("2.json", b'{"width": 8}'), ("index.json", b"{}"), ("3.cls", b"4")]

    dataset = dataset_of(write_tar(tmp_path / "s.tar", members), unlabelled=True)

    assert dataset.sample_ids == ["1", "2"]
    assert contents_of(dataset) == IMAGES[:2]
    assert not dataset.has_labels
    assert [name for name, _ in dataset.skipped] == ["index", "3"]


def test_images_beside_the_one_that_is_read_are_told_in_one_sentence(tmp_path: Path) -> None:
    members = [("1.png", IMAGES[0]), ("1.jpg", IMAGES[1]), ("1.cls", b"0")]
    members += [("2.png", IMAGES[2]), ("2.seg.png", IMAGES[3]), ("2.cls", b"1")]

    dataset = dataset_of(write_tar(tmp_path / "s.tar", members))

    assert contents_of(dataset) == [IMAGES[0], IMAGES[2]]
    assert dataset.warnings == (
        "samples have more than one image, of which these are not read: .jpg (1), .seg.png (1)",
    )


def test_members_of_a_key_need_not_be_neighbours_and_a_mask_is_not_the_image(
    tmp_path: Path,
) -> None:
    members = [("1.seg.png", b"mask"), ("2.jpg", IMAGES[2]), ("1.jpg", IMAGES[1])]
    members += [("1.cls", b"1"), ("2.cls", b"0")]

    dataset = dataset_of(write_tar(tmp_path / "s.tar.gz", members))

    assert dataset.sample_ids == ["2", "1"]
    assert contents_of(dataset) == [IMAGES[2], IMAGES[1]]


def test_long_and_non_ascii_names_are_keys(tmp_path: Path) -> None:
    key = "ordner/" + "ä" * 150
    members = [(f"{key}.jpg", IMAGES[0]), (f"{key}.cls", b"0")]

    dataset = dataset_of(write_tar(tmp_path / "s.tar", members))

    assert dataset.sample_ids == [key]
    assert contents_of(dataset) == [IMAGES[0]]


def test_where_tars_have_the_same_keys_ids_have_the_names_of_the_tars(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
    write_tar(tmp_path / "x/0.tar", _members(IMAGES[:2]))
    write_tar(tmp_path / "y/0.tar", [*_members(IMAGES[2:3]), ("a/003.png", IMAGES[3])])

    dataset = dataset_of(tmp_path / "{x,y}/*.tar")

    assert dataset.sample_ids == ["x/0.tar#a/000", "x/0.tar#a/001", "y/0.tar#a/000"]
    assert contents_of(dataset) == IMAGES[:3]
    assert dataset.warnings[0].startswith("several tars have the same keys")
    assert [sample_id for sample_id, _ in dataset.skipped] == ["y/0.tar#a/003"]


def test_a_repeated_member_is_a_duplicate(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "0.tar", _members(IMAGES[:1]) * 2)

    with pytest.raises(DuplicateSampleId, match=r"two members a/000\.png"):
        dataset_of(path)


def test_samples_without_a_label_are_skipped_with_the_reason(tmp_path: Path) -> None:
    members = [
        *(("README.md", b"about"), ("0.jpg", IMAGES[0])),
        *(("1.jpg", IMAGES[1]), ("1.cls", b"4")),
        *(("2.jpg", IMAGES[2]), ("2.json", b"{")),
        *(("3.jpg", IMAGES[3]), ("3.json", b'{"label": null}')),
        *(("4.jpg", IMAGES[4]), ("4.json", b'{"label": [1]}')),
        *(("5.jpg", IMAGES[5]), ("5.cls", b"-1")),
        *(("6.jpg", IMAGES[6]), ("6.json", b'{"label": 2}')),
    ]

    dataset = dataset_of(write_tar(tmp_path / "s.tar", members))

    assert dataset.sample_ids == ["1", "6"]
    assert dataset.class_names == ("2", "4")
    assert dataset.labels.tolist() == [1, 0]
    assert contents_of(dataset) == [IMAGES[1], IMAGES[6]]
    reasons = dict(dataset.skipped)
    assert sorted(reasons) == ["0", "2", "3", "4", "5", "README"]
    assert reasons["0"].startswith("no label: no .cls member, and no .json with one of label,")
    assert reasons["2"] == "its .json member is not JSON"
    assert reasons["4"] == "the label is a list, not one label"
    assert reasons["5"] == "the label is -1"


def test_a_chosen_label_key_that_no_sample_has_is_an_error(tmp_path: Path) -> None:
    members = [("7.jpg", IMAGES[0]), ("7.json", b'{"label": 0}')]
    path = write_tar(tmp_path / "0.tar", members)

    with pytest.raises(
        DatasetError, match=r"no sample with a label; 1 entry .*no 'kind' in its \.json.*'7'"
    ):
        dataset_of(path, label_column="kind")


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

    link, pipe, without = dataset_of(path).read_shard(0)

    with pytest.raises(ImageError, match="a link to '/etc/passwd'"):
        link.open()
    with pytest.raises(ImageError, match="not a regular file"):
        pipe.open()
    with pytest.raises(ImageError, match="no member with an image extension"):
        without.open()


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_a_truncated_tar_is_named(tmp_path: Path, name: str, keep: float) -> None:
    path = Path(write_tar(tmp_path / name, _members(IMAGES)))
    with tarfile.open(path) as tar:
        end = sum(1024 for _ in tar) if name == "s.tar" else path.stat().st_size
    data = path.read_bytes()
    path.write_bytes(data[: int(end * keep)])

    with pytest.raises(DatasetError, match=r"s\.tar.* is damaged or truncated"):
        dataset_of(path)


def test_a_tar_cut_between_two_members_is_truncated(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "s.tar", _members(IMAGES)))
    path.write_bytes(path.read_bytes()[: 4 * 1024])

    with pytest.raises(DatasetError, match="no end-of-archive mark"):
        dataset_of(path)


def test_a_damaged_header_is_not_treated_as_the_end(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "s.tar", _members(IMAGES)))
    data = bytearray(path.read_bytes())
    data[4 * 1024 : 4 * 1024 + 8] = b"\xff" * 8
    path.write_bytes(data)

    with pytest.raises(DatasetError, match="damaged"):
        dataset_of(path)


def test_order_ids_and_fingerprint_are_the_same_on_each_opening_and_elsewhere(
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    one = dataset_of(write_tar(tmp_path / "s.tar", _members(IMAGES)))
    two = dataset_of(write_tar(tmp_path / "other/s.tar", _members(IMAGES)))

    assert one.sample_ids == two.sample_ids
    assert one.fingerprint == two.fingerprint


def test_a_webdataset_can_be_pickled_to_another_process(tmp_path: Path) -> None:
    dataset = dataset_of(write_tar(tmp_path / "s.tar", _members(IMAGES)))

    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own bytes

    assert contents_of(copy) == IMAGES
