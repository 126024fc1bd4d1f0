"""Signing in with an API key, and out."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from api.http.api_keys import LONGEST_SECRET
from api.http.browsers import delete_cookie, set_cookie
from api.pages.rendering import redirect, render
from api.storage.keys import any_keys, find_key

router = APIRouter(include_in_schema=False)

LOCAL_ADDRESS = re.compile(r"/(?![/\\])[^\x00-\x20\\]*")


@router.get("/sign-in")
def show(
    request: Request, next_: Annotated[str, Query(alias="next", max_length=4000)] = "/"
) -> Response:
    """The form for a key; where there are no keys, the page itself."""
    if not any_keys(request.app.state.engine):
        return redirect(_local(next_))
    return render(request, "sign_in", {"next": _local(next_), "problem": ""})


@router.post("/sign-in")
def sign_in(
    request: Request,
    key: Annotated[str, Form(max_length=4000)] = "",
    next_: Annotated[str, Form(alias="next", max_length=4000)] = "/",
) -> Response:
    """Checks the key and stores it in a cookie."""
    secret = key.strip()
    known = len(secret) <= LONGEST_SECRET and find_key(request.app.state.engine, secret)
    if not known:
        problem = "This key is unknown or revoked." if secret else "Enter a key."
        return render(request, "sign_in", {"next": _local(next_), "problem": problem}, 401)
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
