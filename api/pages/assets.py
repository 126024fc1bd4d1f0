"""The styles and scripts of the pages."""

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from difficulty_service.pages.scripts import classic_script

ASK_AGAIN = "no-cache"
"""Browsers keep a file but ask about it, so that an upgrade shows at once."""

KEEP = "public, max-age=31536000, immutable"
"""Browsers keep a file without asking, as another one would have another address."""

LEVEL = 9  # of compression
MOST_FILES = 256


class Assets:
    """Answers with the files of some folders, as they were at the start.

    Anybody may ask for them without a key, so an answer must cost little: reading the file in a
    thread took longer than all the rest. Each file has two addresses: `/NAME`, and `/VERSION/NAME`,
    which pages use. A script that imports another one by a relative address asks for the same
    version. With several folders, `/PREFIX/NAME` tells the one. `made` are contents without a file.

    Attributes:
        version: Digest of all names and contents.
    """

    def __init__(
        self, folders: Mapping[str, Path], made: Mapping[str, bytes] | None = None
    ) -> None:
        contents = {**(made or {})} | {
            f"{prefix}/{path.relative_to(folder).as_posix()}".lstrip("/"): path.read_bytes()
            for prefix, folder in folders.items()
            for path in sorted(filter(Path.is_file, folder.rglob("*")))
        }
        digest = hashlib.sha256()
        for name, content in contents.items():
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self.version = digest.hexdigest()[:16]
        self._files: dict[str, tuple[Response, Response]] = {}
        for name, content in contents.items():
            self._files[f"/{name}"] = _answers(name, content, ASK_AGAIN)
            self._files[f"/{self.version}/{name}"] = _answers(name, content, KEEP)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with a file, or that the client has it already."""
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        found = self._files.get(scope["path"].removeprefix(scope["root_path"]))
        if found is None:
            raise HTTPException(404)
        headers = Headers(scope=scope)
        plain, compressed = found
        response = compressed if "gzip" in headers.get("accept-encoding", "") else plain
        if response.headers["etag"] in headers.get("if-none-match", ""):
            kept = ("etag", "cache-control", "vary")
            response = Response(
                status_code=304, headers={name: response.headers[name] for name in kept}
            )
        await response(scope, receive, send)


@cache
def page_assets() -> Assets:
    """The files of all pages, as they were when they were first asked for."""
    report = Path(str(files("difficulty_service.pages") / "static"))
    own = Path(str(files("api.pages") / "static"))
    # Before a page is drawn, which a module would come after.
    theme = classic_script(["theme.js"], lambda name: (report / name).read_text("utf-8"))
    return Assets({"": own, "report": report}, {"theme_first.js": theme.encode()})


def _answers(name: str, content: bytes, caching: str) -> tuple[Response, Response]:
    """The answer for browsers that take no compressed files, and that for all others."""
    media_type = mimetypes.guess_type(name)[0] or "text/plain"
    digest = hashlib.sha256(content).hexdigest()[:32]
    headers = {"Cache-Control": caching, "Vary": "Accept-Encoding"}
    plain = Response(content, headers={**headers, "ETag": f'"{digest}"'}, media_type=media_type)
    headers |= {"Content-Encoding": "gzip", "ETag": f'"{digest}-gzip"'}
    return plain, Response(_compressed(content), headers=headers, media_type=media_type)


@lru_cache(MOST_FILES)
def _compressed(content: bytes) -> bytes:
    """Made once for both addresses of a file, and for all applications of a process."""
    return gzip.compress(content, LEVEL, mtime=0)
