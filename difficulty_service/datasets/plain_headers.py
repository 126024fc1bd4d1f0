"""Headers of the plain members of a tar, which `tarfile` would take several times as long to read.

Plain members are regular files and folders whose headers hold octal numbers, alone or after a pax
header about times, owners or the path. They are nearly all members of nearly all tars. The first
header that is anything else, or is damaged, is where `tarfile` has to go on: a member is found here
only where it finds the same one.
"""

import os
import re
import tarfile
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np

MAX_NAME_LENGTH = 4096

_BLOCK = tarfile.BLOCKSIZE
_FILE, _FOLDER, _PAX = tarfile.REGTYPE[0], tarfile.DIRTYPE[0], tarfile.XHDTYPE[0]

_SIZE, _TYPE, _NAME, _PREFIX = slice(124, 135), 156, slice(0, 100), slice(345, 500)

_NUMBERS = ((100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (148, 8), (329, 8), (337, 8))
"""First byte and length of each field with a number."""

_COLUMNS = np.concatenate([np.arange(first, first + length) for first, length in _NUMBERS])
_IS_FIRST = np.isin(_COLUMNS, [first for first, _ in _NUMBERS])
_UNUSED = (slice(8, 16), slice(16, 24), slice(36, 48))
"""Owner, group and time among these columns; nothing depends on them, and they may be binary."""

_DIGIT, _END, _OTHER = 1, 2, 3
_KINDS = np.full(256, _OTHER, np.uint8)
_KINDS[ord("0") : ord("8")] = _DIGIT
_KINDS[[0, ord(" ")]] = _END
_IS_BINARY = np.isin(np.arange(256), (0x80, 0xFF))
_CHECKSUM = slice(148, 156)

_MOST_AT_ONCE = 1024
_MAX_PAX_BYTES = 16 * _BLOCK
_RECORD = re.compile(rb"([1-9][0-9]{0,4}) ([!-<>-~]+)=")
_NOT_PLAIN = re.compile(rb"hdrcharset|GNU\.sparse| (?:size|linkpath)=")
"""What a pax header says of other encodings, of holes, and of where the content is."""


class TarHeader(NamedTuple):
    """One member of a tar.

    Attributes:
        offset: Offset of the first byte of its content.
        is_file: Whether it is a file, which may have holes.
        problem: Reason why it is not a file that can be read; None for a folder.
    """

    name: str
    offset: int
    size: int
    is_folder: bool
    is_file: bool
    problem: str | None = None


class _Unchecked(NamedTuple):
    """A member whose headers are read, but not checked.

    Attributes:
        start: Offset of its first header.
        pax_header: The header in front of its pax records; None without these.
        path: Its name by the pax records; None where they have none.
        content: Offset of the first byte of its content.
    """

    start: int
    header: bytes
    pax_header: bytes | None
    path: str | None
    content: int
    size: int

    def checked(self) -> TarHeader:
        """The member, if its headers are sound."""
        is_folder = self.header[_TYPE] == _FOLDER
        name = self.path
        if name is None:
            prefix, name = _text(self.header[_PREFIX]), _text(self.header[_NAME])
            name = f"{prefix}/{name}" if prefix else name
        name = name.rstrip("/") if is_folder else name
        return TarHeader(name, self.content, self.size, is_folder, not is_folder)


def read_plain_headers(descriptor: int) -> Generator[TarHeader, None, int]:
    """Yields the members of a local tar up to the first that is not plain; returns its offset.

    The position in the file does not change.
    """
    offset, most = 0, 1  # few at first, because some callers look at the first member alone
    while True:
        run = list(_read_run(descriptor, offset, most))
        sound = _count_sound([each.header for each in run])
        if any(each.pax_header for each in run):
            sound = min(sound, _count_sound([each.pax_header or each.header for each in run]))
        for each in run[:sound]:
            yield each.checked()
        if sound < len(run):
            return run[sound].start
        if run:
            offset = run[-1].content + _padded(run[-1].size)
        if len(run) < most:
            return offset
        most = min(2 * most, _MOST_AT_ONCE)


def _read_run(descriptor: int, offset: int, most: int) -> Iterator[_Unchecked]:
    """Members that follow each other, as many as asked for if so many seem to be plain."""
    for _ in range(most):
        start, pax_header, path = offset, None, None
        header = os.pread(descriptor, _BLOCK, offset)
        size = _size(header)
        if size and header[_TYPE] == _PAX:
            pax_header = header
            records = os.pread(descriptor, min(_padded(size), _MAX_PAX_BYTES), offset + _BLOCK)
            try:
                path = _path(records, size)
            except ValueError:
                return
            offset += _BLOCK + len(records)
            header = os.pread(descriptor, _BLOCK, offset)
            size = _size(header)
        if size is None or not (header[_TYPE] == _FILE or (header[_TYPE] == _FOLDER and not size)):
            return
        yield _Unchecked(start, header, pax_header, path, offset + _BLOCK, size)
        offset += _BLOCK + _padded(size)


def _padded(size: int) -> int:
    """The bytes that so many take in whole blocks."""
    return size + -size % _BLOCK


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(tarfile.ENCODING, "surrogateescape")


def _size(header: bytes) -> int | None:
    """The size in a header, if that may be a plain one."""
    if len(header) < _BLOCK:
        return None
    try:
        size = int(header[_SIZE], 8)
    except ValueError:
        return None
    return size if size >= 0 else None


def _path(records: bytes, size: int) -> str | None:
    """The path that pax records state, if they do; raises ValueError where they are not plain.

    Those are plain that every version of `tarfile` reads alike.
    """
    if len(records) < size or records.strip(b"\0") != records[:size] or _NOT_PLAIN.search(records):
        raise ValueError("records that are not plain")
    path, position = None, 0
    while position < size:
        found = _RECORD.match(records, position)
        end = position + int(found[1]) if found else 0
        if found is None or not found.end() < end <= size or records[end - 1] != ord("\n"):
            raise ValueError("a record that is not plain")
        if found[2] == b"path":
            path = records[found.end() : end - 1].decode().rstrip("/")
            if not path or len(path) > MAX_NAME_LENGTH:
                raise ValueError("a path that is not plain")
        position = end
    return path


def _count_sound(headers: Sequence[bytes]) -> int:
    """How many headers come before the first whose numbers or checksum are not plain."""
    blocks = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, _BLOCK)  # (headers, bytes)
    kinds = _KINDS[blocks[:, _COLUMNS]]
    for field in _UNUSED:
        kinds[_IS_BINARY[blocks[:, _COLUMNS[field.start]]], field] = _END
    is_digit_after_end = (kinds[:, 1:] < kinds[:, :-1]) & ~_IS_FIRST[1:]
    checksums = blocks[:, _CHECKSUM]
    stated = np.zeros(len(blocks), np.int64)
    for column in checksums.T:
        stated = np.where(_KINDS[column] == _DIGIT, 8 * stated + (column & 7), stated)
    # The checksum is of a header with spaces in its place.
    sums = (
        blocks.sum(axis=1, dtype=np.uint32) - checksums.sum(axis=1, dtype=np.uint32) + 8 * ord(" ")
    )
    is_sound = (kinds != _OTHER).all(axis=1) & ~is_digit_after_end.any(axis=1) & (stated == sums)
    is_sound &= _KINDS[blocks[:, _SIZE.stop]] == _END
    return len(blocks) if is_sound.all() else int(is_sound.argmin())
