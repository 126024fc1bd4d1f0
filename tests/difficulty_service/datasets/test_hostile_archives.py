"""Malicious tars and zips: refused as a whole, or one member after another."""

import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, DuplicateSampleId
from difficulty_service.datasets import (
    archive as archive_index,
)
from difficulty_service.datasets import (
    open_dataset,
)
from difficulty_service.datasets import (
    tar_files as tar_headers,
)
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.storage import OUTSIDE, boundary_at
from tests.dataset_files import (
    IMAGES,
    Pack,
    dataset_of,
    photos,
    read_samples,
    write_tar,
    write_zip,
)


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
def test_a_name_that_leads_outside_is_refused(pack: Pack, name: str) -> None:
    with pytest.raises(DatasetError, match="has a name that leads outside"):
        dataset_of(pack([*photos(), (name, b"x")]))


def test_a_zip_member_without_a_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in [*photos(), ("", b"x")]:
            archive.writestr(zipfile.ZipInfo(name), data)

    with pytest.raises(DatasetError, match=r"member \d+ of 'photos\.zip' has no name"):
        dataset_of(path)


def test_too_many_nested_folders_are_refused(pack: Pack) -> None:
    with pytest.raises(DatasetError, match="folders deep"):
        dataset_of(pack([*photos(), ("a/" * 40 + "1.png", b"x")]))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_duplicate_member_is_named(pack: Pack) -> None:
    with pytest.raises(DuplicateSampleId, match=r"two members 'dog/b\.png'"):
        dataset_of(pack([*photos(), ("dog/./b.png", b"x")]))


def test_links_and_devices_are_refused_one_by_one(tmp_path: Path) -> None:
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
    write_tar(tmp_path / "a.tar", photos())
    with tarfile.open(tmp_path / "a.tar", "a") as tar:
        for number, kind in enumerate(kinds):
            header = tarfile.TarInfo(f"cat/odd{number}.png")
            header.type, header.linkname, header.size = kind, "/etc/passwd", 0
            tar.addfile(header)
    link = zipfile.ZipInfo("cat/link.png")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        opened.writestr(link, "/etc/passwd")
        opened.writestr("dog/1.png", IMAGES[0])

    odd = [
        text for name, text in read_samples(dataset_of(tmp_path / "a.tar")).items() if "odd" in name
    ]
    linked = read_samples(dataset_of(tmp_path / "a.zip"))

    assert ["link" in str(text) for text in odd] == [True, True, False, False]
    assert all("not" in str(text) for text in odd)
    assert linked["cat/link.png"] == "a link inside a zip, not an image"


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    location = Path(write_zip(tmp_path / "a.zip", photos()))
    data = location.read_bytes()
    at = data.index(b"PK\x01\x02")
    location.write_bytes(data[: at + 8] + b"\x01" + data[at + 9 :])

    with pytest.raises(DatasetError, match="encrypted"):
        dataset_of(location)


def test_a_member_with_an_extreme_compression_ratio_is_not_unpacked(tmp_path: Path) -> None:
    location = write_zip(tmp_path / "a.zip", [*photos(), ("cat/bomb.png", bytes(8 << 20))])

    found = read_samples(dataset_of(location))

    assert "not a photograph" in str(found["cat/bomb.png"])
    assert found["cat/2.png"] == IMAGES[1]


def test_a_member_is_not_unpacked_beyond_its_stated_size(tmp_path: Path) -> None:
    location = Path(write_zip(tmp_path / "a.zip", [("cat/bomb.png", bytes(8 << 20)), *photos()]))
    data = bytearray(location.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 1000)
    location.write_bytes(data)

    found = read_samples(dataset_of(location))

    assert "its size is not" in str(found["cat/bomb.png"])


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    location = Path(write_zip(tmp_path / "a.zip", photos()))
    data = bytearray(location.read_bytes())
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    location.write_bytes(data)

    with pytest.raises(DatasetError, match="overlap"):
        dataset_of(location)


def test_a_boundary_applies_to_the_archive_itself(pack: Pack, tmp_path: Path) -> None:
    location = pack(photos())
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / Path(location).name).symlink_to(location)
    options = DatasetOptions(boundary=boundary_at(str(tmp_path / "root")))

    with pytest.raises(DatasetError, match=OUTSIDE):
        open_dataset(str(tmp_path / "root" / Path(location).name), options)


def test_too_many_members_or_folders_are_refused(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = pack(photos())
    monkeypatch.setattr(archive_index, "MAX_MEMBERS", 3)
    monkeypatch.setattr(tar_headers, "MAX_MEMBERS", 3)

    with pytest.raises(DatasetError, match="more than 3 members"):
        dataset_of(location)


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
def test_a_malicious_header_is_an_error(tmp_path: Path, blocks: bytes) -> None:
    good = Path(write_tar(tmp_path / "good.tar", photos())).read_bytes()
    content = good[: good.rindex(IMAGES[3]) // 512 * 512 + 512]
    (tmp_path / "bad.tar").write_bytes(content + blocks + bytes(10240))

    with pytest.raises(DatasetError, match="damaged"):
        dataset_of(tmp_path / "bad.tar")


def test_a_directory_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, 1 << 29, 0, 0)
    with (tmp_path / "a.zip").open("wb") as file:
        file.truncate(1 << 29)
        file.seek(1 << 29)
        file.write(end)

    with pytest.raises(DatasetError, match="a directory of"):
        dataset_of(tmp_path / "a.zip")
