"""Tars and zips of class folders: read in place, and safe against malicious content."""

import io
import os
import pickle
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.datasets import archive_index, open_dataset, tar_headers
from difficulty_service.datasets.boundary import OUTSIDE
from difficulty_service.datasets.detection import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.storage import boundary_at
from difficulty_service.errors import (
    DatasetError,
    DifficultyError,
    DuplicateSampleId,
    ImageError,
)

Members = list[tuple[str, bytes]]


def _tar(path: Path, members: Members, mode: str = "w") -> str:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return str(path)


def _zip(path: Path, members: Members, method: int = zipfile.ZIP_DEFLATED) -> str:
    with zipfile.ZipFile(path, "w", method) as opened:
        for name, data in members:
            opened.writestr(zipfile.ZipInfo(name), data, method)
    return str(path)


@pytest.fixture(params=["photos.tar", "photos.zip"])
def pack(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Members], str]:
    """Writes members into a tar or a zip."""
    write = _zip if request.param.endswith("zip") else _tar
    return lambda members: write(tmp_path / request.param, members)


def _read(dataset: Dataset) -> dict[str, bytes | str]:
    """The content of each sample, or the reason why it cannot be read."""
    found: dict[str, bytes | str] = {}
    for shard in range(dataset.num_shards):
        for sample in dataset.read_shard(shard):
            try:
                with sample.open() as file:
                    found[sample.sample_id] = file.read()
            except ImageError as error:
                found[sample.sample_id] = str(error)
    return found


def _photos(images: list[bytes], prefix: str = "") -> Members:
    names = ["dog/b.png", "cat/2.png", "dog/a.JPG", "cat/old/1.png"]
    return [(prefix + name, image) for name, image in zip(names, images, strict=False)]


@pytest.mark.parametrize("prefix", ["", "./", "photos/", "./photos/"])
def test_class_folders_may_be_inside_a_single_folder(
    pack: Callable[[Members], str], images: list[bytes], prefix: str
) -> None:
    members = _photos(images, prefix)

    dataset = open_dataset(pack(members), DatasetOptions(shard_size=3))

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 0, 1, 1]
    assert _read(dataset) == {name.removeprefix("./"): image for name, image in members}


def test_a_split_is_one_of_the_folders(pack: Callable[[Members], str], images: list[bytes]) -> None:
    location = pack(_photos(images, "train/") + _photos(images[4:], "test/"))

    dataset = open_dataset(location, DatasetOptions(split="test"))

    assert sorted(_read(dataset).values()) == sorted(images[4:8])  # type: ignore[type-var]
    with pytest.raises(DatasetError, match="choose one"):
        open_dataset(location, DatasetOptions())


def test_files_that_are_not_images_raise_the_reason_and_hidden_files_are_ignored(
    pack: Callable[[Members], str], images: list[bytes]
) -> None:
    extra = [("cat/notes.txt", b"x"), ("cat/.DS_Store", b"x"), ("__MACOSX/cat/._2.png", b"x")]

    found = _read(open_dataset(pack(_photos(images) + extra), DatasetOptions()))

    assert len(found) == 5
    assert "extension '.txt'" in str(found["cat/notes.txt"])


def test_stored_and_zip64_members_are_read(tmp_path: Path, images: list[bytes]) -> None:
    location = _zip(tmp_path / "stored.zip", _photos(images), zipfile.ZIP_STORED)
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as opened:
        for name, data in _photos(images):
            with opened.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member.write(data)

    stored = open_dataset(location, DatasetOptions())
    large = open_dataset(str(tmp_path / "large.zip"), DatasetOptions())

    assert _read(stored) == _read(large) == dict(_photos(images))


def test_an_archive_can_be_pickled_to_another_process(
    pack: Callable[[Members], str], images: list[bytes]
) -> None:
    dataset = open_dataset(pack(_photos(images)), DatasetOptions())

    opener = pickle.loads(pickle.dumps(next(dataset.read_shard(0)).open))  # noqa: S301

    assert opener().read() == images[1]


def test_samples_with_label_files_are_a_webdataset_even_in_folders(
    tmp_path: Path, images: list[bytes]
) -> None:
    shard = [("a/1.png", images[0]), ("a/2.png", images[1]), ("a/2.cls", b"0"), ("a/1.cls", b"1")]
    flat = [("1.png", images[0])]
    stray = [("meta.json", b"{}"), *_photos(images), ("cat/notes.json", b"{}")]

    kinds = [
        detect_kind(_tar(tmp_path / f"{number}.tar", members))
        for number, members in enumerate([shard, flat, stray])
    ]

    assert kinds == ["webdataset", "webdataset", "archive"]


def test_a_tar_compressed_as_a_whole_is_refused_with_an_alternative(
    tmp_path: Path, images: list[bytes]
) -> None:
    location = _tar(tmp_path / "photos.tar.gz", _photos(images), "w:gz")

    with pytest.raises(DatasetError, match=r"uncompressed \.tar, or a \.zip"):
        open_dataset(location, DatasetOptions())


def test_two_archives_are_not_one_dataset(tmp_path: Path, images: list[bytes]) -> None:
    for name in ("a.zip", "b.zip"):
        _zip(tmp_path / name, _photos(images))

    with pytest.raises(DatasetError, match="matches 2 archives"):
        open_dataset(str(tmp_path / "*.zip"), DatasetOptions())


@pytest.mark.parametrize(
    "name",
    [
        "../cat/1.png",
        "cat/../../1.png",
        "/etc/1.png",
        "cat/..",
        "C:/cat/1.png",
        "cat\\..\\1.png",
        "cat/a\n.png",
    ],
)
def test_a_name_that_leads_outside_is_refused(
    pack: Callable[[Members], str], images: list[bytes], name: str
) -> None:
    with pytest.raises(DatasetError, match="has a name that leads outside"):
        open_dataset(pack([*_photos(images), (name, b"x")]), DatasetOptions())


def test_too_many_nested_folders_are_refused(
    pack: Callable[[Members], str], images: list[bytes]
) -> None:
    with pytest.raises(DatasetError, match="folders deep"):
        open_dataset(pack([*_photos(images), ("a/" * 40 + "1.png", b"x")]), DatasetOptions())


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_duplicate_member_is_named(pack: Callable[[Members], str], images: list[bytes]) -> None:
    with pytest.raises(DuplicateSampleId, match=r"two members 'dog/b\.png'"):
        open_dataset(pack([*_photos(images), ("dog/./b.png", b"x")]), DatasetOptions())


def test_links_and_devices_are_refused_one_by_one(tmp_path: Path, images: list[bytes]) -> None:
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
    _tar(tmp_path / "a.tar", _photos(images))
    with tarfile.open(tmp_path / "a.tar", "a") as tar:
        for number, kind in enumerate(kinds):
            header = tarfile.TarInfo(f"cat/odd{number}.png")
            header.type, header.linkname, header.size = kind, "/etc/passwd", 0
            tar.addfile(header)
    link = zipfile.ZipInfo("cat/link.png")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        opened.writestr(link, "/etc/passwd")
        opened.writestr("dog/1.png", images[0])

    odd = [
        text
        for name, text in _read(open_dataset(str(tmp_path / "a.tar"), DatasetOptions())).items()
        if "odd" in name
    ]
    linked = _read(open_dataset(str(tmp_path / "a.zip"), DatasetOptions()))

    assert ["link" in str(text) for text in odd] == [True, True, False, False]
    assert all("not" in str(text) for text in odd)
    assert linked["cat/link.png"] == "a link inside a zip, not an image"


def test_an_encrypted_zip_is_refused(tmp_path: Path, images: list[bytes]) -> None:
    location = Path(_zip(tmp_path / "a.zip", _photos(images)))
    data = location.read_bytes()
    at = data.index(b"PK\x01\x02")
    location.write_bytes(data[: at + 8] + b"\x01" + data[at + 9 :])

    with pytest.raises(DatasetError, match="encrypted"):
        open_dataset(str(location), DatasetOptions())


def test_a_member_with_an_extreme_compression_ratio_is_not_unpacked(
    tmp_path: Path, images: list[bytes]
) -> None:
    location = _zip(tmp_path / "a.zip", [*_photos(images), ("cat/bomb.png", bytes(8 << 20))])

    found = _read(open_dataset(location, DatasetOptions()))

    assert "not a photograph" in str(found["cat/bomb.png"])
    assert found["cat/2.png"] == images[1]


def test_a_member_is_not_unpacked_beyond_its_stated_size(
    tmp_path: Path, images: list[bytes]
) -> None:
    location = Path(_zip(tmp_path / "a.zip", [("cat/bomb.png", bytes(8 << 20)), *_photos(images)]))
    data = bytearray(location.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 1000)
    location.write_bytes(data)

    found = _read(open_dataset(str(location), DatasetOptions()))

    assert "its size is not" in str(found["cat/bomb.png"])


def test_members_that_share_bytes_are_refused(tmp_path: Path, images: list[bytes]) -> None:
    location = Path(_zip(tmp_path / "a.zip", _photos(images)))
    data = bytearray(location.read_bytes())
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    location.write_bytes(data)

    with pytest.raises(DatasetError, match="overlap"):
        open_dataset(str(location), DatasetOptions())


def test_changed_content_is_a_bad_image(tmp_path: Path, images: list[bytes]) -> None:
    location = Path(_zip(tmp_path / "a.zip", _photos(images), zipfile.ZIP_STORED))
    data = location.read_bytes()
    location.write_bytes(data.replace(images[0], images[0][:-1] + b"\x00"))

    found = _read(open_dataset(str(location), DatasetOptions()))

    assert "checksum" in str(found["dog/b.png"])


def test_an_archive_that_shrinks_after_the_listing_gives_bad_images(
    pack: Callable[[Members], str], images: list[bytes]
) -> None:
    location = pack(_photos(images))
    dataset = open_dataset(location, DatasetOptions())

    os.truncate(location, 100)

    assert all(isinstance(found, str) for found in _read(dataset).values())


def test_a_boundary_applies_to_the_archive_itself(
    pack: Callable[[Members], str], images: list[bytes], tmp_path: Path
) -> None:
    location = pack(_photos(images))
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / Path(location).name).symlink_to(location)
    options = DatasetOptions(boundary=boundary_at(str(tmp_path / "root")))

    with pytest.raises(DatasetError, match=OUTSIDE):
        open_dataset(str(tmp_path / "root" / Path(location).name), options)


def test_too_many_members_or_folders_are_refused(
    pack: Callable[[Members], str], images: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    location = pack(_photos(images))
    monkeypatch.setattr(archive_index, "MAX_MEMBERS", 3)
    monkeypatch.setattr(tar_headers, "MAX_MEMBERS", 3)

    with pytest.raises(DatasetError, match="more than 3 members"):
        open_dataset(location, DatasetOptions())


def _header(name: bytes, size: bytes, kind: bytes) -> bytes:
    """A tar header with unchecked fields."""
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:108] = b"0000644\x00"
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\x00 " % sum(block)
    return bytes(block)


HOSTILE = {
    "a long name of 8 GiB": _header(b"x", b"77777777777\x00", b"L"),
    "a pax header of 8 GiB": _header(b"x", b"77777777777\x00", b"x"),
    "a negative size": _header(b"cat/1.png", b"\xff" * 10 + b"\xfe\x00", b"0"),
    "a negative long name": _header(b"x", b"\xff" * 10 + b"\xfe\x00", b"L"),
    "long names without end": _header(b"x", b"00000000000\x00", b"L") * 3000,
    "pax headers without end": _header(b"x", b"00000000000\x00", b"x") * 3000,
}


@pytest.mark.parametrize("blocks", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_malicious_header_is_an_error(tmp_path: Path, images: list[bytes], blocks: bytes) -> None:
    good = Path(_tar(tmp_path / "good.tar", _photos(images))).read_bytes()
    content = good[: good.rindex(images[3]) // 512 * 512 + 512]
    (tmp_path / "bad.tar").write_bytes(content + blocks + bytes(10240))

    with pytest.raises(DatasetError, match="damaged"):
        open_dataset(str(tmp_path / "bad.tar"), DatasetOptions())


def test_a_directory_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, 1 << 29, 0, 0)
    with (tmp_path / "a.zip").open("wb") as file:
        file.truncate(1 << 29)
        file.seek(1 << 29)
        file.write(end)

    with pytest.raises(DatasetError, match="a directory of"):
        open_dataset(str(tmp_path / "a.zip"), DatasetOptions())


@pytest.mark.parametrize("seed", range(2))
def test_damage_anywhere_is_a_named_error_or_bad_images(
    pack: Callable[[Members], str], images: list[bytes], seed: int
) -> None:
    location = Path(pack(_photos(images)))
    whole = location.read_bytes()
    chance = random.Random(seed)  # noqa: S311
    outcomes = set()

    for _ in range(60):
        end = chance.randrange(1, len(whole)) if chance.random() < 0.3 else len(whole)
        data = bytearray(whole[:end])
        for _ in range(chance.randrange(1, 20)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        location.write_bytes(data)
        try:
            outcomes.update(
                map(type, _read(open_dataset(str(location), DatasetOptions())).values())
            )
        except DifficultyError:
            outcomes.add(DifficultyError)

    assert DifficultyError in outcomes
