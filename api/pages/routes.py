"""All pages: their static files, signing in and out, and the reference of the REST service."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Form, Query, Request
from starlette.responses import Response

from api.http.api_keys import LONGEST_SECRET, UNKNOWN_KEY, ReadKey, find_principal
from api.http.browsers import delete_cookie, set_cookie
from api.http.problems import Problem
from api.pages import (
    columns,
    comparisons,
    copies,
    faults,
    images,
    jobs,
    map_page,
    marking,
    reviewers,
    views,
)
from api.pages.assets import page_assets
from api.pages.rendering import redirect, render
from api.services import services_of
from api.storage.keys import any_keys

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def show_reference(request: Request, _key: ReadKey) -> Response:
    """Every address with its methods and parameters."""
    schema: dict[str, Any] = request.app.openapi()
    operations = [
        (method.upper(), path, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    return render(request, "api_reference", {"info": schema["info"], "operations": operations})


LOCAL_ADDRESS = re.compile(r"/(?![/\\])[^\x00-\x20\\]*")


@router.get("/sign-in")
def show_sign_in(
    request: Request, next_: Annotated[str, Query(alias="next", max_length=4000)] = "/"
) -> Response:
    """The form for a key; where there are no keys, the page itself."""
    if not any_keys(services_of(request).engine):
        return redirect(_local(next_))
    return _ask_for_key(request, next_)


def _ask_for_key(request: Request, next_: str, problem: str = "", status: int = 200) -> Response:
    contact = services_of(request).settings.contact
    values = {"next": _local(next_), "problem": problem, "contact": contact}
    return render(request, "sign_in", values, status)


@router.post("/sign-in")
def sign_in(
    request: Request,
    key: Annotated[str, Form(max_length=4000)] = "",
    next_: Annotated[str, Form(alias="next", max_length=4000)] = "/",
) -> Response:
    """Checks the key and stores it in a cookie."""
    secret = key.strip()
    problem, principal = "enter a key" if not secret else UNKNOWN_KEY, None
    if secret and len(secret) <= LONGEST_SECRET:
        try:
            principal = find_principal(services_of(request).engine, secret)
        except Problem as error:
            problem = error.detail
    if principal is None:
        sentence = f"{problem[0].upper()}{problem[1:]}."
        return _ask_for_key(request, next_, sentence, 401)
    request.state.principal = principal  # for the logs
    answer = redirect(_local(next_))
    set_cookie(answer, secret, secure=request.url.scheme == "https")
    return answer


@router.post("/sign-out")
def sign_out(request: Request) -> Response:
    """Deletes the cookie."""
    answer = redirect("/sign-in")
    delete_cookie(answer, secure=request.url.scheme == "https")
    return answer


def _local(address: str) -> str:
    """An address of this service; a link must not lead from the sign-in to another site."""
    return address if LOCAL_ADDRESS.fullmatch(address) else "/"


ROUTERS = (
    router,
    jobs.router,
    views.router,
    copies.router,
    faults.router,
    map_page.router,
    columns.router,
    comparisons.router,
    reviewers.router,
    marking.router,
    images.router,
)


def add_pages(app: FastAPI) -> None:
    """Adds the pages to an application."""
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/static", page_assets())
