"""Reads numbers, texts and structures from MATLAB files of version 5.

A damaged file is an error here; with scipy's reader it can end the process. Every length in the
file is checked against the bytes that there are.

https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf
"""

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from difficulty_service.datasets.published.members import READ_ERRORS, Member, damaged
from difficulty_service.datasets.storage import open_file

_NUMBERS = {
    1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8",
    13: "<u8",
}  # fmt: skip
_MATRIX, _COMPRESSED = 14, 15
_TEXT_ENCODINGS = {2: "utf-8", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le"}
_STRUCTURE, _TEXT, _UINT8, _NUMBER_CLASSES = 2, 4, 9, range(6, 16)
_HEADER_BYTES, _HEAD_BYTES = 128, 1024
_ERRORS = (*READ_ERRORS, struct.error, IndexError)


@dataclass(frozen=True)
class Variable:
    """A variable of a file, not yet read: where its content is, and the shape of its array."""

    offset: int
    size: int
    is_compressed: bool
    is_uint8: bool
    shape: tuple[int, ...]


def list_variables(file: Member) -> dict[str, Variable]:
    """The variables of a file by name, from their first bytes alone."""
    try:
        with open_file(file.place) as opened:
            return dict(_variables(opened, file.size))
    except _ERRORS as error:
        raise damaged(file.name, error) from error


def read_variable(file: Member, variable: Variable, max_bytes: int) -> Any:  # noqa: ANN401
    """The value of a variable: an array in Fortran order, a text, or a list of structures.

    A structure is a dictionary; values of other types are None. `max_bytes` limits the size after
    decompression.
    """
    try:
        with open_file(file.place) as opened:
            opened.seek(variable.offset)
            data = opened.read(variable.size)
        if variable.is_compressed:
            data = zlib.decompressobj().decompress(data, max_bytes)
        if len(data) >= max_bytes:
            raise ValueError(f"a variable has {max_bytes:,} bytes or more")
        return _value(memoryview(data)[8:] if variable.is_compressed else memoryview(data))
    except _ERRORS as error:
        raise damaged(file.name, error) from error


def _variables(opened: BinaryIO, file_size: int) -> Iterator[tuple[str, Variable]]:
    if opened.read(_HEADER_BYTES)[-4:] != b"\x00\x01IM":
        raise ValueError("it is not a little-endian MATLAB file of version 5")
    position = _HEADER_BYTES
    while position < file_size:
        kind, size = struct.unpack("<II", opened.read(8))
        if kind not in (_MATRIX, _COMPRESSED) or position + 8 + size > file_size:
            raise ValueError(f"there is no whole variable at byte {position:,}")
        head = opened.read(min(size, _HEAD_BYTES))
        if kind == _COMPRESSED:
            head = zlib.decompressobj().decompress(head, _HEAD_BYTES)[8:]
        matrix_class, shape, name, _ = _read_head(memoryview(head))
        is_uint8 = matrix_class == _UINT8
        yield name, Variable(position + 8, size, kind == _COMPRESSED, is_uint8, shape)
        position += 8 + size
        opened.seek(position)


def _read_head(data: memoryview) -> tuple[int, tuple[int, ...], str, int]:
    """Class, shape and name of a matrix, and the position after them."""
    _, flags, position = _element(data, 0)
    _, lengths, position = _element(data, position)
    _, name, position = _element(data, position)
    shape = tuple(np.frombuffer(lengths, "<i4").tolist())
    if any(length < 0 for length in shape):
        raise ValueError(f"a variable has the shape {shape}")
    return flags[0], shape, str(name, "utf-8", "backslashreplace"), position


def _element(data: memoryview, position: int) -> tuple[int, memoryview, int]:
    """Type and content of the element at a position, and the position after it."""
    kind, size = struct.unpack_from("<II", data, position)
    start, end = position + 8, position + 8 + size
    if kind >> 16:  # up to four bytes, inside the tag itself
        kind, size = kind & 0xFFFF, kind >> 16
        start, end = position + 4, position + 4 + min(size, 4)
    if end > len(data):
        raise ValueError("an element ends after its variable")
    return kind, data[start:end], position + 8 + (0 if start < position + 8 else -(-size // 8) * 8)


def _value(data: memoryview) -> Any:  # noqa: ANN401
    matrix_class, shape, _, position = _read_head(data)
    if matrix_class == _STRUCTURE:
        return _structures(data, position, math.prod(shape))
    if matrix_class not in (_TEXT, *_NUMBER_CLASSES):
        return None
    kind, content, _ = _element(data, position)
    if matrix_class == _TEXT and kind in _TEXT_ENCODINGS:
        return str(content, _TEXT_ENCODINGS[kind])
    if kind not in _NUMBERS:
        raise ValueError(f"values are of the unknown type {kind}")
    values = np.frombuffer(content, _NUMBERS[kind])
    return values.reshape(shape, order="F")


def _structures(data: memoryview, position: int, count: int) -> list[dict[str, Any]]:
    _, lengths, position = _element(data, position)
    (length,) = struct.unpack("<i", lengths)
    _, texts, position = _element(data, position)
    names = [
        bytes(texts[start : start + length]).split(b"\0")[0].decode()
        for start in range(0, len(texts), length)
    ]
    if count * len(names) > len(data):
        raise ValueError(f"{count:,} structures do not fit into {len(data):,} bytes")
    structures: list[dict[str, Any]] = []
    for _ in range(count):
        fields = {}
        for name in names:
            _, content, position = _element(data, position)
            fields[name] = _value(content)
        structures.append(fields)
    return structures
