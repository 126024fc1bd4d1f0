"""A checksum inside a file, of all its other bytes.

The checksum is a line of text at a place that readers of the format skip: before the footer of a
Parquet file, in the footer of an Arrow file, in the comment of a zip archive, in the metadata of a
safetensors file. A program that rewrites the file leaves the line out, and a file without it is
read unchecked.

A checksum beside a file of text that people edit, of which a line would break other readers.

JSON objects with a checksum of their values in members of its own.

White space, the order of the members and the spelling of a number do not matter.

Zip archives, such as those of NumPy and PyTorch, with a checksum as their comment.
"""

import errno
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from difficulty_service.base.files import file_sha256, replacing
from difficulty_service.base.json_text import parse_json

PREFIX = b"difficulty-xxh3-128 "
ZEROS = b"0" * 32
LINE = re.compile(PREFIX + rb"([0-9a-f]{32}) without ([0-9a-f]{16}) ([0-9a-f]{16})")
LINE_BYTES = len(PREFIX) + len(ZEROS) + len(b" without ") + 16 + 1 + 16

PARQUET_MAGIC, PARQUET_END = b"PAR1", 8
"""A Parquet file ends with the length of its footer, 4 bytes, and the magic number."""

BLOCK_BYTES = 1 << 18
SEARCHED_FIRST, SEARCHED_HEAD, SEARCHED_TAIL = 1 << 16, 1 << 20, 16 << 20

TICK_NS = 2_000_000_000
"""A file that changed more recently than this may change again without another time."""


class DamagedFile(OSError, ValueError):
    """The bytes of a file are not those that were written."""


@dataclass(frozen=True)
class Checksum:
    """The line of text in a file.

    Attributes:
        digest: XXH3 of 128 bits, as 32 hexadecimal digits, of the file with zeros in their place.
    """

    position: int
    digest: bytes
    without: range


def empty_line(without: range = range(0)) -> bytes:
    """The line with zeros as digits, which `fill_in` replaces once the file is written."""
    return PREFIX + ZEROS + b" without %016x %016x" % (without.start, len(without))


def fill_in(path: Path, position: int, without: range = range(0)) -> None:
    """Writes the checksum into a file."""
    with path.open("rb+") as file:
        file.seek(position)
        file.write(empty_line(without))
        digest = _digest(file, file.seek(0, os.SEEK_END), position, without)
        file.seek(position + len(PREFIX))
        file.write(digest)


def append_checksum(path: Path) -> None:
    """Adds the line at the end of a file whose readers do not look there."""
    with path.open("ab") as file:
        position = file.tell()
        file.write(empty_line())
    fill_in(path, position)


def filled_in(data: bytes) -> bytes:
    """The bytes of a file with an `empty_line`, with the digits of its checksum."""
    start = data.index(PREFIX) + len(PREFIX)
    digest = xxhash.xxh3_128_hexdigest(data).encode()
    return data[:start] + digest + data[start + len(digest) :]


def verify_path(path: Path) -> Checksum | None:
    """Checks the checksum of a file, None if it has none; once, as long as the file is the same."""
    stat = path.stat()
    if time.time_ns() - stat.st_mtime_ns < TICK_NS:
        return _verify_path.__wrapped__(path)
    return _verify_path(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _verify_path(path: Path, *_identity: int) -> Checksum | None:
    with path.open("rb", buffering=0) as file:
        return verify(file)


def verify(file: BinaryIO) -> Checksum | None:
    """Checks the checksum of an open file, which may be a file of pyarrow; as `verify_path`."""
    size = file.seek(0, os.SEEK_END)
    position = _find(file, size)
    if position is None:
        return None
    found = LINE.fullmatch(_read(file, position, LINE_BYTES))
    if found is None:
        raise DamagedFile("its checksum is damaged")
    start, length = (int(digits, 16) for digits in found.groups()[1:])
    checksum = Checksum(position, found[1], range(start, start + length))
    if start + length > size or checksum.digest != _digest(file, size, position, checksum.without):
        raise DamagedFile("its checksum does not match its content")
    return checksum


def parquet_footer(file: BinaryIO) -> int:
    """Position of the footer of a Parquet file; negative where the file does not end as one."""
    size = file.seek(0, os.SEEK_END)
    end = _read(file, max(0, size - PARQUET_END), PARQUET_END)
    if not end.endswith(PARQUET_MAGIC):
        return -1
    return size - PARQUET_END - int.from_bytes(end[:4], "little")


def _find(file: BinaryIO, size: int) -> int | None:
    """Position of the line; also where damage has moved it, so that the file is not trusted."""
    for position in (parquet_footer(file) - LINE_BYTES, size - LINE_BYTES):
        if position >= 0 and _read(file, position, len(PREFIX)) == PREFIX:
            return position
    for start, length in (
        (max(0, size - SEARCHED_FIRST), SEARCHED_FIRST),
        (0, SEARCHED_HEAD),
        (max(0, size - SEARCHED_TAIL), SEARCHED_TAIL),
    ):
        offset = _read(file, start, length).find(PREFIX)
        if offset >= 0:
            return start + offset
    return None


def _digest(file: BinaryIO, size: int, position: int, without: range) -> bytes:
    digits = position + len(PREFIX)
    hasher = xxhash.xxh3_128()
    start = 0
    replaced = [(range(digits, digits + len(ZEROS)), ZEROS)]
    if without:
        replaced.append((without, b""))
    for part, replacement in sorted(replaced, key=lambda each: each[0].start):
        _update(hasher, file, range(start, part.start))
        hasher.update(replacement)
        start = part.stop
    _update(hasher, file, range(start, size))
    return hasher.hexdigest().encode()


def _update(hasher: xxhash.xxh3_128, file: BinaryIO, part: range) -> None:
    file.seek(part.start)
    left = len(part)
    block = memoryview(bytearray(min(left, BLOCK_BYTES)))  # one, which stays in the cache
    while left and (count := file.readinto(block[:left])):  # type: ignore[attr-defined]
        hasher.update(block[:count])
        left -= count


def _read(file: BinaryIO, position: int, length: int) -> bytes:
    file.seek(position)
    return file.read(length)


JSON_KEY = "checksum"
MARK = "with_checksum"
"""A member that tells an object that lost its checksum from one that never had any.

It is the first member, the checksum is the last, so that no piece that is cut out takes both and
leaves any other member.
"""

JSON_PREFIX = "xxh3-128:"


def dump_checked(values: Mapping[str, Any], **options: Any) -> str:  # noqa: ANN401
    """A JSON object with its checksum, and that it has one, as other members."""
    is_sorted = options.pop("sort_keys", False)
    allow_nan = options.get("allow_nan", True)
    written = json.loads(json.dumps(values, sort_keys=is_sorted, allow_nan=allow_nan))
    return json.dumps({MARK: True, **written, JSON_KEY: _checksum(written)}, **options)


def load_checked(text: str) -> dict[str, Any]:
    """The values of a JSON object, without its checksum; it may have none.

    Raises:
        DamagedFile: The checksum does not match.
        ValueError: The text is no JSON object.
    """
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError(f"it holds {type(values).__name__}, not an object")  # noqa: TRY004 - of a file
    checksum, marked = values.pop(JSON_KEY, None), values.pop(MARK, False)
    # Damage to a key must not make a file look like one without a checksum.
    texts = [value for value in values.values() if isinstance(value, str)]
    is_damaged = any(text.startswith(JSON_PREFIX) for text in texts)
    if checksum is None:
        is_damaged |= bool(marked)
    else:
        is_damaged |= checksum != _checksum(values)
    if is_damaged:
        raise DamagedFile(
            f"its checksum does not match its content; delete the members {JSON_KEY} and {MARK} if "
            "the rest was changed on purpose"
        )
    return values


def _checksum(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return JSON_PREFIX + xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


class ChangedFile(UserWarning):
    """A file is not as it was written: somebody edited it, or it is damaged."""


def describe_change(path: Path) -> str:
    """A sentence about a file that is meant to be edited and is not as it was written."""
    return (
        f"{path} has changed since it was written; if nobody has edited it, it is damaged: take a "
        "copy of it, or make it again"
    )


def checksum_file(path: Path) -> Path:
    """The file beside another one that `sha256sum --check` reads."""
    return path.with_name(f"{path.name}.sha256")


def write_checksum_beside(path: Path, content: Path) -> None:
    """Writes the checksum of a file; `content` holds what the file is about to.

    A file whose name leaves no room for another ending has none.
    """
    try:
        checksum_file(path).write_text(f"{file_sha256(content)}  {path.name}\n", "utf-8")
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise


def is_changed(path: Path) -> bool:
    """Whether a file differs from the checksum beside it, or is gone; False where there is none."""
    try:
        written = checksum_file(path).read_bytes()
    except OSError:
        return False
    return not path.is_file() or not written.startswith(file_sha256(path).encode())


END_MAGIC, END_BYTES = b"PK\x05\x06", 22
"""The record at the end of an archive; its last two bytes are the length of the comment."""


def add_checksum(path: Path) -> None:
    """Adds the checksum to an archive that has no comment."""
    with path.open("rb+") as file:
        position = file.seek(-2, os.SEEK_END) + 2
        file.write(LINE_BYTES.to_bytes(2, "little"))
        file.write(empty_line())
    fill_in(path, position)


def verify_zip(path: Path) -> None:
    """Checks the checksum of an archive, if it was written with one."""
    if verify_path(path) is not None:
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LINE_BYTES - END_BYTES))
        if file.read(len(END_MAGIC)) == END_MAGIC:
            raise DamagedFile("its checksum is lost")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes JSON values as a file that appears whole or not at all."""
    with replacing(path) as temporary:
        text = dump_checked(values, indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", "utf-8")
