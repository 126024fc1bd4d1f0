"""All pages, their static files, and what the application needs for both."""

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI

from api.pages import api_reference, images, jobs, map_page, pictures, sign_in, views
from api.pages.assets import Assets
from api.pages.rendering import problem_page

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
    report = Path(str(files("difficulty_service.reporting") / "static"))
    own = Path(str(files("api.pages") / "static"))
    app.mount("/static/report", Assets(report))
    app.mount("/static", Assets(own))
    app.state.problem_page = problem_page
