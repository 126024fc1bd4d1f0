"""Range requests and conditional requests for a file (RFC 9110, sections 13 and 14)."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request, Response

from api.http.problems import Problem

RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
UNCHANGED, WHOLE, PARTIAL = 304, 200, 206


@dataclass(frozen=True)
class RequestedBytes:
    """The bytes to answer with."""

    status: int  # 200 for the whole file, 206 for a part, 304 if the client has it already
    start: int
    stop: int  # position after the last byte


def parse_range(
    size: int, etag: str, *, requested: str | None, if_range: str | None, none_match: str | None
) -> RequestedBytes:
    """The bytes that the headers of a request ask for.

    Several ranges, and a header that is not a range, are answered with the whole file, as the
    standard allows.

    The entity tag is a strong one, with its quotes.

    Raises:
        Problem: The range begins after the end of the file.
    """
    if none_match is not None and _lists(none_match, etag):
        return RequestedBytes(UNCHANGED, 0, 0)
    match = RANGE.fullmatch((requested or "").strip())
    if match is None or (if_range is not None and if_range.strip() != etag):
        return RequestedBytes(WHOLE, 0, size)
    first, last = match.groups()
    if not first and not last:
        return RequestedBytes(WHOLE, 0, size)
    if not first:  # the last bytes of the file
        start, stop = max(size - int(last), 0), size
    else:
        start, stop = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < start:
            return RequestedBytes(WHOLE, 0, size)
    if start >= stop:
        raise Problem(
            416,
            "range-not-satisfiable",
            f"the file has {size:,} bytes",
            "request bytes within the size of the file",
            field="Range",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return RequestedBytes(PARTIAL, start, stop)


def _lists(none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in none_match.split(",")]
    return etag in tags or tags == ["*"]


CACHED = "private, max-age=86400"


def small_file(request: Request, path: Path, media_type: str) -> Response:
    """A file as a whole, unless its reader has it already."""
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": CACHED}
    if _lists(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=UNCHANGED, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
