"""Which bytes of a file a request asks for (RFC 9110, sections 13 and 14)."""

import re
from dataclasses import dataclass

RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
UNCHANGED, WHOLE, PARTIAL = 304, 200, 206


class Unsatisfiable(ValueError):
    """The file has none of the bytes asked for."""


@dataclass(frozen=True)
class Wanted:
    """What to answer with.

    Attributes:
        status: 200 for the whole file, 206 for a part, 304 if the client has it already.
        start: First byte.
        stop: Byte behind the last one.
    """

    status: int
    start: int
    stop: int


def wanted_bytes(
    size: int, etag: str, *, asked: str | None, only_if: str | None, none_match: str | None
) -> Wanted:
    """What the headers of a request ask for.

    Several ranges at once, and what is no range, are answered with the whole file, as the
    standard allows.

    Args:
        size: Bytes of the file.
        etag: Strong; changes with the file. With its quotes.
        asked: The header Range.
        only_if: The header If-Range: with another file than this, the range counts for nothing.
        none_match: The header If-None-Match: what the client has already.

    Raises:
        Unsatisfiable: The range lies behind the end.
    """
    if none_match is not None and _lists(none_match, etag):
        return Wanted(UNCHANGED, 0, 0)
    match = RANGE.fullmatch((asked or "").strip())
    if match is None or (only_if is not None and only_if.strip() != etag):
        return Wanted(WHOLE, 0, size)
    first, last = match.groups()
    if not first and not last:
        return Wanted(WHOLE, 0, size)
    if not first:  # so many from the end
        start, stop = max(size - int(last), 0), size
    else:
        start, stop = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < start:
            return Wanted(WHOLE, 0, size)
    if start >= stop:
        raise Unsatisfiable(f"the file has {size:,} bytes")
    return Wanted(PARTIAL, start, stop)


def _lists(none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in none_match.split(",")]
    return etag in tags or tags == ["*"]
