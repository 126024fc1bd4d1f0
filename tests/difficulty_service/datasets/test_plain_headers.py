"""Headers of plain members of a tar, beside `tarfile`, which reads those of a file in memory."""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difficulty_service.datasets.plain_headers import TarHeader, read_plain_headers
from difficulty_service.datasets.tar_files import TAR_ERRORS, read_headers

BLOCK = tarfile.BLOCKSIZE
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
SYSTEM_TAR = shutil.which("tar")

Outcome = tuple[list[TarHeader], str | None]


def outcome(headers: Iterable[TarHeader]) -> Outcome:
    """The headers up to an error, and that error."""
    found: list[TarHeader] = []
    try:
        for header in headers:
            found.append(header)  # noqa: PERF402 - those before an error as well
    except TAR_ERRORS as error:
        return found, f"{type(error).__name__}: {error}"
    return found, None


def both(content: bytes) -> tuple[Outcome, Outcome]:
    """What is read of a file, and what tarfile alone reads of the same bytes in memory."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return outcome(read_headers(file)), outcome(read_headers(io.BytesIO(content)))


def plain(content: bytes) -> tuple[list[TarHeader], int]:
    """The plain members of a file up to the first that is not, and its offset."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        found, headers = [], read_plain_headers(file.fileno())
        while True:
            try:
                found.append(next(headers))
            except StopIteration as stop:
                return found, stop.value


def pack(members: Iterable[dict[str, Any]], kind: int, **options: Any) -> bytes:  # noqa: ANN401
    """A tar of members, each with attributes of its TarInfo."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=kind, **options) as tar:
        for member in members:
            header = tarfile.TarInfo()
            for name, value in member.items():
                setattr(header, name, value)
            content = io.BytesIO(bytes(header.size)) if header.isreg() else None
            try:
                tar.addfile(header, content)
            except (ValueError, UnicodeError):  # which this format cannot hold
                continue
    return written.getvalue()


def checked(block: bytes) -> bytes:
    """A header with the checksum that it should have."""
    empty = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(empty) + block[156:]


def replace(content: bytes, position: int, new: bytes) -> bytes:
    """An archive whose header at a position has other bytes, and the checksum of these."""
    start = position // BLOCK * BLOCK
    changed = content[:position] + new + content[position + len(new) :]
    return changed[:start] + checked(changed[start : start + BLOCK]) + changed[start + BLOCK :]


TYPES = (tarfile.REGTYPE, tarfile.DIRTYPE)
ODD_TYPES = (tarfile.AREGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE)
PAX_RECORDS = (
    {"comment": "11 path=x"},
    {"SCHILY.xattr.user.note": "two\nlines = of text"},
    {"LIBARCHIVE.creationtime": "1700000000.25"},
    {"path": "elsewhere/ü/"},
    {"path": ""},
    {"path": "a" * 5000},
    {"path": "cat/1.png\0"},
    {"size": "3"},
    {"mtime": "never"},
    {"linkpath": "x"},
    {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "cat/holes.png"},
    {"GNU.sparse.size": "1024", "GNU.sparse.numblocks": "0"},
    {"comment": "21 hdrcharset=BINARY\n"},
    {"hdrcharset": "BINARY"},
)
NAMES = st.one_of(
    st.sampled_from(["cat/1.png", "./cat/2.png", "cat/", "cat//x/", "a" * 100, "a" * 100 + "/"]),
    st.text(st.sampled_from("aü/. \udce4\n"), min_size=1, max_size=30),
    st.sampled_from(["folder/" * 20 + "1.png", "f" * 120 + "/" + "n" * 90, "long" * 80]),
)
MEMBERS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "type": st.sampled_from(TYPES * 12 + ODD_TYPES),
        "size": st.sampled_from([0, 1, 511, 512, 513, 2000]),
        "mtime": st.sampled_from([0, 1700000000, 1700000000.123, 8**11 - 1, -5]),
        "uid": st.sampled_from([0, 0, 1000, 8**7 - 1, 1 << 30]),
        "uname": st.sampled_from(["", "root", "jürgen", "x" * 40]),
        "pax_headers": st.sampled_from([{}] * 15 + list(PAX_RECORDS)),
    }
)
ARCHIVES = st.fixed_dictionaries(
    {
        "members": st.lists(MEMBERS, max_size=6),
        "kind": st.sampled_from(list(FORMATS.values())),
        "pax_headers": st.sampled_from([{}] * 8 + [{"comment": "all"}, {"path": "all/of/them"}]),
    }
)
"""Arguments of `pack`."""


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(ARCHIVES)
def test_members_are_those_that_tarfile_finds(archive: dict[str, Any]) -> None:
    ours, theirs = both(pack(**archive))

    assert ours == theirs


@settings(max_examples=200, deadline=None)
@given(ARCHIVES, st.data())
def test_truncated_archives_have_the_members_and_the_error_of_tarfile(
    archive: dict[str, Any], data: st.DataObject
) -> None:
    content = pack(**archive)
    length = data.draw(st.integers(0, len(content.rstrip(b"\0")) + 2 * BLOCK))

    ours, theirs = both(content[:length])

    assert ours == theirs


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(ARCHIVES, st.data())
def test_damaged_headers_have_the_members_and_the_error_of_tarfile(
    archive: dict[str, Any], data: st.DataObject
) -> None:
    content = pack(**archive)
    blocks = len(content.rstrip(b"\0")) // BLOCK
    start = BLOCK * data.draw(st.integers(0, blocks))
    position = data.draw(st.one_of(st.integers(100, 160), st.integers(0, BLOCK - 8)))
    new = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(
        [b"\x80", b"\xff", b" ", b"8", b"_", b"+", b"-", b"7 7", b"7\0007", b"\0", b"x", b"g", b"L"]
    )))  # fmt: skip
    damage = replace if data.draw(st.booleans()) else _without_checksum

    ours, theirs = both(damage(content, start + position, new))

    assert ours == theirs


def _without_checksum(content: bytes, position: int, new: bytes) -> bytes:
    return content[:position] + new + content[position + len(new) :]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(
    st.sampled_from([b"13 mtime=1.5\n", b"18 path=cat/1.png\n", b"30 mtime=1.5\n"]),
    st.sampled_from([b"0 path=x\n", b"09 path=x\n", b"9 path=x\n", b"9 path=x ", b"4 path=x\n"]),
    st.sampled_from([b"9 p\nth=x\n", b"7 =xyz\n", b"7 a===\n", b"12 path=\xff\xfe/\n", b"\0"]),
    st.binary(max_size=12),
), max_size=4))  # fmt: skip
def test_pax_records_have_the_effect_that_they_have_in_tarfile(records: list[bytes]) -> None:
    content = pack([{"name": "cat/1.png", "size": 5}], tarfile.USTAR_FORMAT)
    joined = b"".join(records)
    size = b"%011o\0" % len(joined)
    header = replace(content[:BLOCK], 124, size + content[136:156] + tarfile.XHDTYPE)
    padding = bytes(-len(joined) % BLOCK)

    ours, theirs = both(header + joined + padding + content)

    assert ours == theirs


@pytest.mark.parametrize("records", PAX_RECORDS, ids=lambda records: next(iter(records)))
def test_each_pax_record_has_the_effect_that_it_has_in_tarfile(records: dict[str, str]) -> None:
    names = [{"name": f"cat/{number}.png", "size": 5} for number in range(3)]
    members = [names[0], {**names[1], "pax_headers": records}, names[2]]

    ours, theirs = both(pack(members, tarfile.PAX_FORMAT))

    assert ours == theirs
    assert ours[0]


def test_a_record_after_the_end_of_the_records_has_the_effect_that_it_has_in_tarfile() -> None:
    content = pack([{"name": "cat/1.png", "size": 5}], tarfile.USTAR_FORMAT)
    records = b"13 mtime=1.5\n" + b"18 path=dog/1.png\n"
    header = replace(content[:BLOCK], 124, b"%011o\0" % 13 + content[136:156] + tarfile.XHDTYPE)

    ours, theirs = both(header + records.ljust(BLOCK, b"\0") + content)

    assert ours == theirs


@pytest.mark.parametrize(
    ("position", "new"),
    [
        (100, b"00 0644\0"),
        (100, b"00\x000644\0"),
        (100, b"0000648\0"),
        (108, b"\x80\0\0\0\0\0\0\x01"),
        (108, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        (124, b"\x80\0\0\0\0\0\0\0\0\0\0\x05"),
        (124, b"000000000050"),
        (124, b"+0000000005\0"),
        (124, b"0_000000005\0"),
        (124, b" 0000000005\0"),
        (124, b"0000000005\0\0"),
        (124, b"-7777777777\0"),
        (124, b"77777777777\0"),
        (124, bytes(12)),
        (136, b"never"),
        (156, b"\0"),
        (156, b"9"),
        (329, b"x"),
        (345, b"folder"),
    ],
)
def test_each_unusual_field_has_the_effect_that_it_has_in_tarfile(
    position: int, new: bytes
) -> None:
    content = pack([{"name": f"cat/{n}.png", "size": 5} for n in range(3)], tarfile.GNU_FORMAT)

    for member in (0, 1, 2):
        ours, theirs = both(replace(content, 2 * BLOCK * member + position, new))

        assert ours == theirs


@pytest.mark.parametrize("kind", FORMATS)
def test_what_most_programs_write_needs_no_tarfile(kind: str) -> None:
    members = [
        {"name": f"cat{number % 7}/{number:05}.png", "size": number % 1500, "mtime": 1.7e9 + 0.25}
        for number in range(5000)
    ]
    folders = [{"name": "cat0/", "type": tarfile.DIRTYPE, "uid": 1 << 30}]
    if kind == "ustar":
        folders = [{"name": "cat0/", "type": tarfile.DIRTYPE, "uid": 1000}]

    content = pack([*folders, *members], FORMATS[kind])
    found, end = plain(content)

    assert [header.name for header in found] == ["cat0", *(each["name"] for each in members)]
    assert [header.size for header in found] == [0, *(each["size"] for each in members)]
    assert [header.is_folder for header in found] == [True] + [False] * 5000
    assert not content[end:].strip(b"\0")


def test_a_long_path_in_a_pax_header_needs_no_tarfile() -> None:
    name = "cat/" + "ü" * 300 + ".png"

    found, _ = plain(pack([{"name": name, "size": 3}], tarfile.PAX_FORMAT))

    assert [header.name for header in found] == [name]


def test_tarfile_goes_on_where_a_member_is_not_plain() -> None:
    names = [f"cat/{number}.png" for number in range(9)]
    members: list[dict[str, Any]] = [{"name": name, "size": 5} for name in names]
    members[4] = {"name": names[4], "type": tarfile.SYMTYPE, "linkname": "0.png"}
    content = pack(members, tarfile.USTAR_FORMAT)

    found, end = plain(content)
    (headers, error), _ = both(content)

    assert [header.name for header in found] == names[:4]
    assert end == 4 * 2 * BLOCK
    assert [header.name for header in headers] == names
    assert "a link to '0.png'" in str(headers[4].problem)
    assert error is None


def test_a_caller_may_seek_between_headers(tmp_path: Path) -> None:
    members = [{"name": f"{number}.cls", "size": 700} for number in range(40)]
    (tmp_path / "a.tar").write_bytes(pack(members, tarfile.GNU_FORMAT))

    with (tmp_path / "a.tar").open("rb") as file:
        names = []
        for header in read_headers(file):
            file.seek(header.offset)
            assert file.read(header.size) == bytes(700)
            names.append(header.name)

    assert names == [each["name"] for each in members]


@pytest.mark.skipif(SYSTEM_TAR is None, reason="tar is not installed")
@pytest.mark.parametrize(
    ("kind", "length"),
    [
        ("v7", 20),
        ("ustar", 20),
        *((kind, n) for kind in ("oldgnu", "gnu", "posix") for n in (20, 90)),
    ],
)
def test_what_the_program_tar_writes_is_read_as_tarfile_does(
    tmp_path: Path, kind: str, length: int
) -> None:
    folder = tmp_path / "photos" / ("c" * length)
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"{number:04}.png").write_bytes(bytes(100 * number))
    with (folder / "0030.png").open("wb") as file:
        file.truncate(1 << 20)
    os.link(folder / "0001.png", folder / "0031.png")
    (folder / "0032.png").symlink_to("0001.png")
    holes = [] if kind in ("v7", "ustar") else ["--sparse"]
    packed = tmp_path / "photos.tar"
    command = [str(SYSTEM_TAR), f"--format={kind}", *holes, "-cf", str(packed), "photos"]

    subprocess.run(command, cwd=tmp_path, check=True)  # noqa: S603
    ours, theirs = both(packed.read_bytes())

    assert ours == theirs
    assert len(ours[0]) == 35
    assert ours[1] is None
