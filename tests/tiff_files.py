"""TIFF of any number of bands and pages, written by hand."""

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = {"u": 1, "i": 2, "f": 3}
"""What SampleFormat calls kinds of numbers."""

Values = NDArray[Any]


def differences(values: Values) -> Values:
    changed = values.copy()
    changed[:, 1:] = values[:, 1:] - values[:, :-1]
    return changed


def directory(tags: list[tuple[int, Any]], at: int, following: int, order: str) -> bytes:
    """A directory at a place, with values that do not fit behind it."""
    entries, behind = b"", b""
    start = at + 2 + 12 * len(tags) + 4
    for tag, value in sorted(tags):
        values = value if isinstance(value, list) else [value]
        kind, letter = (4, "I") if tag in (273, 279, 324, 325, 256, 257, 278) else (3, "H")
        packed = struct.pack(f"{order}{len(values)}{letter}", *values)
        head = struct.pack(f"{order}HHI", tag, kind, len(values))
        if len(packed) > 4:
            entries += head + struct.pack(f"{order}I", start + len(behind))
            behind += packed
        else:
            entries += head + packed.ljust(4, b"\0")
    number = struct.pack(f"{order}H", len(tags))
    return number + entries + struct.pack(f"{order}I", following and start + len(behind)) + behind


def tiff(  # noqa: PLR0913 - one parameter for each way to write one
    pages: list[Values],
    order: str = "<",
    *,
    separate: bool = False,
    deflate: bool = False,
    tile: int = 0,
    predictor: int = 1,
    photometric: int = 1,
    extra: int | None = None,
    reduced: bool = False,
) -> bytes:
    """Pages of shape (height, width, bands), written by hand."""
    data = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8)
    for place, values in enumerate(pages):
        rows, columns, number = values.shape
        stored = values.astype(values.dtype.newbyteorder(order))
        if predictor == 2:
            stored = differences(stored)
        planes = [stored[:, :, [each]] for each in range(number)] if separate else [stored]
        step = tile or 7
        chunks = []
        for plane in planes:
            for top in range(0, rows, step):
                for left in range(0, columns, tile or columns):
                    part = plane[top : top + step, left : left + (tile or columns)]
                    if tile:
                        missing = (tile - part.shape[0], tile - part.shape[1])
                        part = np.pad(part, ((0, missing[0]), (0, missing[1]), (0, 0)))
                    chunks.append(part.tobytes())
        chunks = [zlib.compress(each) for each in chunks] if deflate else chunks
        tags: list[tuple[int, Any]] = [
            (256, columns), (257, rows), (258, [values.itemsize * 8] * number),
            (259, 8 if deflate else 1), (262, photometric), (277, number),
            (284, 2 if separate else 1), (317, predictor),
            (339, [KINDS[values.dtype.kind]] * number),
        ]  # fmt: skip
        if extra is not None:
            tags.append((338, [extra] * (number - 3)))
        if reduced and place:
            tags.append((254, 1))
        tags += [(322, tile), (323, tile)] if tile else [(278, step)]
        names = (324, 325) if tile else (273, 279)
        tags += [(names[0], [0] * len(chunks)), (names[1], [len(each) for each in chunks])]
        following = int(place + 1 < len(pages))
        length = len(directory(tags, len(data), following, order))
        begin = len(data) + length
        offsets = [begin]
        for each in chunks[:-1]:
            offsets.append(offsets[-1] + len(each))
        tags = [(tag, offsets if tag == names[0] else value) for tag, value in tags]
        made = directory(tags, len(data), following, order)
        body = b"".join(chunks)
        if following:  # the next directory comes after the content
            at = made.index(struct.pack(f"{order}I", len(data) + length))
            made = made[:at] + struct.pack(f"{order}I", begin + len(body)) + made[at + 4 :]
        data += made + body
    return data
