"""Exception handlers that answer every error of a request with a problem."""

import errno
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import MAX_BODY_SIZE_SCOPE_KEY
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from api.http.needed_services import find_services, needed_services
from api.http.problems import (
    CONTENT_TYPE,
    STORAGE_REASONS,
    Problem,
    bad_request,
    invalid,
    reason_of,
    too_large,
    unavailable,
    unreadable,
)
from api.http.public_text import hide_paths, public_names
from api.storage.database import DatabaseUnusable, is_damaged
from api.storage.space import is_full
from difficulty_service.base.errors import DifficultyError, MissingPackage, Setting

RETRY_AFTER = 5  # seconds; a restart of the database takes about that long
RETRY_AFTER_CLEANING = 60  # seconds
MAX_ERRORS = 10  # that the answer to one request names
MAX_DETAIL_LENGTH = 2000  # characters; the detail may quote the request
SERVER_ERROR = 500
DATA = "/v1/"  # addresses whose problems are data, also for a browser
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

KINDS: Mapping[int, tuple[str, str]] = {
    400: ("bad-request", "see /openapi.json for what the address accepts"),
    401: ("unauthorised", "send a key as `Authorization: Bearer KEY`"),
    403: ("forbidden", "use a key with the required scope"),
    404: ("not-found", "see /openapi.json for all addresses"),
    405: ("method-not-allowed", "use one of the methods in the Allow header"),
    408: ("too-slow", "send the request again over a faster connection"),
    409: ("conflict", "read the current state first"),
    413: ("too-large", "send a smaller body"),
    415: ("unsupported-media-type", "see /openapi.json for what the address accepts"),
    422: ("invalid-request", "see /openapi.json for what the address accepts"),
    429: ("too-many-requests", "try again later"),
    503: ("unavailable", "try again later"),
}
"""Type and remedy of the statuses of the framework's own errors."""


def answer(problem: Problem, scope: MutableMapping[str, Any]) -> Response:
    """The response for a problem; its type is stored in the scope, for the log and the metrics.

    A browser that asks for a page gets one, once the application has started.
    """
    scope.setdefault("state", {})["problem"] = problem.type
    services = find_services(scope)
    accepts_page = "text/html" in Headers(scope=scope).get("accept", "")
    if services is not None and accepts_page and not scope["path"].startswith(DATA):
        return services.problem_page(problem, Request(scope))
    body = problem.body()
    body["detail"] = body["detail"][:MAX_DETAIL_LENGTH]
    return JSONResponse(
        body, problem.status, headers=dict(problem.headers), media_type=CONTENT_TYPE
    )


def from_validation(error: RequestValidationError) -> Problem:
    """For invalid fields: the first one in `field` and up to ten in `detail`, without values."""
    errors = error.errors()
    if any(each["type"] == "json_invalid" for each in errors):
        reason = errors[0].get("ctx", {}).get("error", "")
        return bad_request(f"the body is not JSON: {reason}", "send valid JSON")
    messages = [f"{_field(each, error.body)}: {reason_of(each)}" for each in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        messages.append(f"and {len(errors) - MAX_ERRORS} more")
    return invalid(
        "; ".join(messages) or "the request is invalid",
        "correct these fields; /openapi.json has their schema",
        field=_field(errors[0], error.body) if errors else None,
    )


def _field(error: Mapping[str, Any], body: object) -> str:
    """Path of a field without its part of the request (body, query), unless there is no more."""
    part, *path = error["loc"]
    if part == "body":
        path = list(_in_body(path, body, is_missing=error["type"] == "missing"))
    return ".".join(map(str, path or [part]))


def _in_body(path: Sequence[str | int], body: Any, *, is_missing: bool) -> Iterator[str | int]:  # noqa: ANN401 - of any JSON
    """The steps of a path that lead through a body; the others say which type of several failed."""
    for position, step in enumerate(path, 1):
        if isinstance(body, list):
            has_step = isinstance(step, int) and step < len(body)
        else:
            has_step = isinstance(body, Mapping) and step in body
        if has_step:
            body = body[step]
            yield step
        elif is_missing and position == len(path):
            yield step


def from_http(error: HTTPException) -> Problem:
    """For an error that the framework raises."""
    kind, remedy = KINDS.get(
        error.status_code, KINDS[400] if error.status_code < SERVER_ERROR else ("", "")
    )
    if not kind:
        return from_unexpected()
    status = error.status_code if error.status_code in KINDS else 400
    return Problem(
        status,
        kind,
        str(error.detail or HTTPStatus(status).phrase),
        remedy,
        headers=error.headers or {},
    )


def body_too_large(limit: int) -> Problem:
    """For a body of more than `limit` bytes; closes the connection, as the rest is not read."""
    return too_large(
        f"the body is larger than {limit:,} bytes",
        "send less at a time; whole datasets go to POST /v1/uploads",
        headers={"Connection": "close"},
    )


def from_difficulty(error: DifficultyError) -> Problem:
    """For an error of the library: unusable data, or a part of the service that is missing."""
    if isinstance(error, DatabaseUnusable | MissingPackage):
        return _unavailable("a part of the service is not installed or not up to date")
    # Parameters of the library are no fields of this request: a remedy that names one is of no use.
    names_parameters = any(isinstance(part, Setting) for part in error.remedy)
    remedy = "" if names_parameters else _one_line("".join(map(str, error.remedy)))
    return unreadable(_one_line(error.problem), remedy or "correct what the detail names")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def from_database(error: DBAPIError | PoolTimeout) -> Problem:
    """For an error of the database: it does not answer, or refuses a value of the request."""
    if isinstance(error, DataError):
        return invalid(
            "the request contains a value that cannot be stored",
            "send text without NUL and numbers of at most 64 bits",
        )
    if is_full(error):
        return _no_space(STORAGE_REASONS[errno.ENOSPC])
    if is_damaged(error):
        return _unavailable("the database of the service is damaged; its operator can restore it")
    # Only these mean that the database is unreachable; others are bugs.
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        return _unavailable("the database does not answer")
    return from_unexpected()


def from_system(error: OSError) -> Problem:
    """For a file or disk of the server that fails; a full disk is named, the rest are bugs."""
    reason = STORAGE_REASONS.get(error.errno or 0)
    return from_unexpected() if reason is None else _no_space(reason)


def _no_space(reason: str) -> Problem:
    return Problem(
        507,
        "storage",
        reason,
        "delete uploads or finished jobs, which is always possible, or try again later; the "
        "operator can free space in DIFFICULTY_DATA_DIR",
        headers={"Retry-After": str(RETRY_AFTER_CLEANING)},
    )


def _unavailable(detail: str) -> Problem:
    return unavailable(detail, "try again later", headers={"Retry-After": str(RETRY_AFTER)})


def from_unexpected() -> Problem:
    """For a bug: without its cause, which the log has under the same request id."""
    return Problem(
        500,
        "internal",
        "an unexpected error occurred; the log has the details",
        "report it with the X-Request-ID of this answer",
    )


CONVERSIONS: Mapping[type[Exception], Callable[[Any], Problem]] = {
    Problem: lambda problem: problem,
    RequestValidationError: from_validation,
    HTTPException: from_http,
    DifficultyError: from_difficulty,
    DBAPIError: from_database,
    PoolTimeout: from_database,
    OSError: from_system,
}
"""Conversion of each kind of exception to a problem."""


def problem_of(error: Exception) -> Problem:
    """The problem for an exception; errors of the server are logged."""
    for kind, convert in CONVERSIONS.items():
        if isinstance(error, kind):
            problem = convert(error)
            break
    else:
        problem = from_unexpected()
    if problem.type == "storage":
        structlog.get_logger().warning("disk-full", reason=type(error).__name__)
    elif problem is not error and problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        structlog.get_logger().error("request-failed", exc_info=error)
    return problem


def add_handlers(app: FastAPI) -> None:
    """Makes the application answer every known exception with a problem."""

    def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == HTTPStatus.NO_CONTENT:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        problem = problem_of(error)
        if isinstance(error, DifficultyError):
            # The library names the files that it reads as this server knows them.
            names = public_names(needed_services(request.scope).settings)
            detail, remedy = (hide_paths(each, names) for each in (problem.detail, problem.remedy))
            problem = replace(problem, detail=detail, remedy=remedy)
        if isinstance(error, HTTPException) and problem.status == HTTPStatus.METHOD_NOT_ALLOWED:
            # The framework names the methods of the first route of that address only.
            allowed = {
                method
                for method in METHODS
                for route in request.app.routes
                if route.matches({**request.scope, "method": method})[0] is Match.FULL
            }
            problem.headers = {**problem.headers, "Allow": ", ".join(sorted(allowed))}
        limit = request.scope.get(MAX_BODY_SIZE_SCOPE_KEY)
        too_large = problem.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if isinstance(error, HTTPException) and too_large and limit is not None:
            problem = body_too_large(limit)
        return answer(problem, request.scope)

    for kind in CONVERSIONS:
        app.add_exception_handler(kind, handle)
