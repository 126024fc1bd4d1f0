"""Answers with a small file, whole or in part, or with the word that the client has it already."""

import hashlib
from pathlib import Path

from fastapi import Request, Response

from api.http.byte_ranges import PARTIAL, UNCHANGED, Unsatisfiable, parse_range, unsatisfiable

CACHED = "private, max-age=86400"


def small_file(request: Request, path: Path, media_type: str) -> Response:
    """The bytes of a file that a request asks for, by its headers Range and If-None-Match.

    Args:
        request: The request.
        path: A file that fits in memory.
        media_type: Media type of the file.

    Raises:
        Problem: The range begins after the end of the file.
    """
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    asked = request.headers
    try:
        part = parse_range(
            len(content),
            etag,
            requested=asked.get("range"),
            if_range=asked.get("if-range"),
            none_match=asked.get("if-none-match"),
        )
    except Unsatisfiable as error:
        raise unsatisfiable(error, len(content)) from None
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": CACHED}
    if part.status == UNCHANGED:
        return Response(status_code=UNCHANGED, headers=headers)
    if part.status == PARTIAL:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(content)}"
    return Response(content[part.start : part.stop], part.status, headers, media_type)
