"""All pages, their static files, and what the application needs for both."""

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from api.pages import api_reference, images, jobs, map_page, sign_in, views
from api.pages.rendering import problem_page

ROUTERS = (
    sign_in.router,
    jobs.router,
    views.router,
    map_page.router,
    images.router,
    api_reference.router,
)


class _Assets(StaticFiles):
    """Files that browsers keep but ask about, so that an upgrade shows at once."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def add_pages(app: FastAPI) -> None:
    """Adds the pages to an application."""
    for router in ROUTERS:
        app.include_router(router)
    report = Path(str(files("difficulty_service.reporting") / "static"))
    own = Path(str(files("api.pages") / "static"))
    app.mount("/static/report", _Assets(directory=report))
    app.mount("/static", _Assets(directory=own))
    app.state.problem_page = problem_page
