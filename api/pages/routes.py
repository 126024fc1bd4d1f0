"""All pages, their static files, and what the application needs for both.

Styles and scripts of the pages, which are kept in memory.
"""

import hashlib
import mimetypes
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.pages import api_reference, images, jobs, map_page, pictures, sign_in, views
from api.pages.rendering import problem_page

NO_CACHE = {"Cache-Control": "no-cache"}
"""Browsers keep a file but ask about it, so that an upgrade shows at once."""


@dataclass(frozen=True)
class Asset:
    """A file."""

    content: bytes
    media_type: str
    etag: str


class Assets:
    """Answers with the files of a folder, as they were at the start.

    Anybody may ask for them without a key, so an answer must cost little: reading the file in a
    thread took longer than all the rest.
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


ROUTERS = (
    sign_in.router,
    jobs.router,
    views.router,
    map_page.router,
    images.router,
    pictures.router,
    api_reference.router,
)


def add_pages(app: FastAPI) -> None:
    """Adds the pages to an application."""
    for router in ROUTERS:
        app.include_router(router)
    report = Path(str(files("difficulty_service.review") / "static"))
    own = Path(str(files("api.pages") / "static"))
    app.mount("/static/report", Assets(report))
    app.mount("/static", Assets(own))
    app.state.problem_page = problem_page
