"""Styles and scripts of the pages, which are kept in memory."""

import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

NO_CACHE = {"Cache-Control": "no-cache"}
"""Browsers keep a file but ask about it, so that an upgrade shows at once."""


@dataclass(frozen=True)
class Asset:
    """A file.

    Attributes:
        content: The whole file.
        media_type: Media type, by its name.
        etag: Changes with the content.
    """

    content: bytes
    media_type: str
    etag: str


class Assets:
    """Answers with the files of a folder, as they were at the start.

    Anybody may ask for them without a key, so an answer must cost little: reading the file in a
    thread took longer than all the rest.

    Args:
        folder: The folder, with all that is below it.
    """

    def __init__(self, folder: Path) -> None:
        self._assets = {
            f"/{path.relative_to(folder).as_posix()}": _read(path)
            for path in folder.rglob("*")
            if path.is_file()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with a file, or that the client has it already.

        Raises:
            HTTPException: The method is not one for reading (405), or there is no such file (404).
        """
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        asset = self._assets.get(scope["path"].removeprefix(scope["root_path"]))
        if asset is None:
            raise HTTPException(404)
        headers = {**NO_CACHE, "ETag": asset.etag}
        if asset.etag in Headers(scope=scope).get("if-none-match", ""):
            response = Response(status_code=304, headers=headers)
        else:
            response = Response(asset.content, headers=headers, media_type=asset.media_type)
        await response(scope, receive, send)


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    media_type, _ = mimetypes.guess_type(path.name)
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Asset(content, media_type or "text/plain", etag)
