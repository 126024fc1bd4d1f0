"""The web application: routes and their description, middleware, start, housekeeping."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import structlog
from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware

from api.background import Wait, in_background
from api.explored import Rounds
from api.http.api_keys import OPEN_PATHS, Authentication
from api.http.browsers import BrowserHeaders
from api.http.limits import BodyLimits, limits_of, rate_limiter
from api.http.needed_services import attach_services
from api.http.problem_responses import add_handlers
from api.http.problems import CONTENT_TYPE
from api.jobs.files import count_results, delete_left_files, finish_deletions
from api.metrics import Metrics, RequestLog
from api.pages.rendering import compile_templates, problem_page
from api.pages.routes import add_pages
from api.results.score_columns import load_conversions
from api.routes import (
    columns,
    comparisons,
    events,
    gaussians,
    jobs,
    marks,
    results,
    reviewers,
    system,
    uploads,
)
from api.services import ServiceInputs, Services, open_services
from api.settings import Settings
from api.storage.database import is_damaged
from api.storage.key_uses import KeyUses
from api.storage.space import keep_reserve
from api.uploads.store import complete_received
from difficulty_service.bodies.service import ProblemSchema

ROUTERS = (
    system.router,
    jobs.router,
    events.router,
    results.router,
    columns.router,
    comparisons.router,
    marks.router,
    reviewers.router,
    uploads.router,
    gaussians.router,
)

DESCRIPTION = """Scores how hard each image of a labelled dataset is: larger is harder.

Errors are problem details (RFC 9457): a stable `type`, what is wrong in `detail`, the field at
fault in `field` and what to do in `remedy`.
"""


def create_app(
    settings: Settings,
    rounds: Rounds | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Creates the application, which opens its services when it is started.

    `rounds` are those of a score file that is explored; `is_stopping` tells whether long answers
    should end.
    """
    inputs = ServiceInputs(settings, Metrics(), problem_page, rounds, is_stopping)
    app = FastAPI(
        title="difficulty",
        version=version("difficulty-service"),
        description=DESCRIPTION,
        lifespan=partial(lifespan, inputs=inputs),
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    add_handlers(app)
    # The middleware added last is the first to get a request.
    app.add_middleware(BodyLimits, limit_of=limits_of(settings))
    app.add_middleware(
        Authentication,
        count=rate_limiter(settings.rate_limit),
        any_host=bool(settings.allowed_hosts),
    )
    if settings.allowed_hosts:
        # A page of another site may let its own name lead to this address, and is then its own
        # site to a browser.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(settings.allowed_hosts))
    app.add_middleware(BrowserHeaders)
    app.add_middleware(RequestLog, metrics=inputs.metrics)
    app.add_middleware(CorrelationIdMiddleware)
    for router in ROUTERS:
        app.include_router(router)
    add_pages(app)
    app.openapi = with_problems(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def lifespan(app: FastAPI, inputs: ServiceInputs) -> AsyncIterator[None]:
    """Runs the services in threads, as what they open and close takes a while."""
    stack = ExitStack()
    try:
        services = await run_in_threadpool(stack.enter_context, running_services(inputs))
        attach_services(app, services)
        yield
    finally:
        await run_in_threadpool(stack.close)


@contextmanager
def running_services(inputs: ServiceInputs) -> Iterator[Services]:
    """The services, open, and what goes on in the background as long as they are."""
    with open_services(inputs) as services:
        compile_templates()
        load_conversions()
        keeping = inputs.rounds.keeping_marks(services.engine) if inputs.rounds else nullcontext()
        with housekeeping(services), keeping, recording_uses(services.engine, services.key_uses):
            yield services


REFERENCE = "#/components/schemas/Problem"
MEANINGS = {
    "400": "The request cannot be understood",
    "401": "A valid API key is needed",
    "403": "The key does not allow this",
    "404": "There is no such thing, or it belongs to another key",
    "409": "It does not fit the present state",
    "413": "The body is larger than allowed",
    "415": "The body is of another kind than expected",
    "422": "A field of the request is wrong",
    "429": "Too many requests; the Retry-After header says when to try again",
    "431": "Address and headers are larger than allowed",
    "500": "Something went wrong inside",
    "503": "The service cannot do this now",
    "507": "There is no room for it, on the disk or of what the key may keep",
}
"""Description of a status where the route gives none."""

ALWAYS = ("431",)
AUTHENTICATED = ("401", "403", "429", "500", "503", "507")  # wherever a key may be needed
WITH_BODY = ("400", "413", "415", "422")
WITH_PARAMETERS = ("404", "422")
UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")  # the framework's own errors


def with_problems(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi` that declares the problems of every address."""
    original = app.openapi
    return cache(lambda: _complete(original()))


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = ProblemSchema.model_json_schema()
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            # As in the address; what a dependency declares would come last.
            operation.get("parameters", []).sort(key=partial(_place, path))
            statuses = [
                *ALWAYS,
                *(() if path in OPEN_PATHS else AUTHENTICATED),
                *(WITH_BODY if "requestBody" in operation else ()),
                *(WITH_PARAMETERS if operation.get("parameters") else ()),
            ]
            for status in statuses:
                operation["responses"].setdefault(status, {})
            for status, response in operation["responses"].items():
                _complete_response(status, response)
    for name in UNUSED_SCHEMAS:
        schemas.pop(name, None)
    return schema


def _place(path: str, parameter: dict[str, Any]) -> int:
    return path.find(f"{{{parameter['name']}}}") if parameter["in"] == "path" else len(path)


def _complete_response(status: str, response: dict[str, Any]) -> None:
    """Gives an error a description and the schema of a problem, unless it has its own."""
    if not status.startswith(("4", "5")):
        return
    schemas = [body["schema"] for body in response.get("content", {}).values() if "schema" in body]
    if response.get("description") in (None, "", "Validation Error"):
        response["description"] = MEANINGS.get(status, "A problem")
    if not any(schemas) or any("HTTPValidationError" in str(schema) for schema in schemas):
        response["content"] = {CONTENT_TYPE: {"schema": {"$ref": REFERENCE}}}


SWEEP_SECONDS = 600.0  # seconds between two sweeps of files that deleted jobs have left
USES_SECONDS = 60.0  # seconds between two records of which keys were used
END_SECONDS = 5.0  # to wait for the sweep in progress; whatever it leaves, the next one finds


@contextmanager
def housekeeping(services: Services) -> Iterator[None]:
    """Keeps house in a thread within the context."""
    engine, settings, artifacts = services.engine, services.settings, services.artifacts

    def keep_house(wait: Wait) -> None:
        _try("uploads", lambda: complete_received(engine, settings, services.upload_checks))
        is_ended = wait(0)
        while not is_ended:
            if settings.takes_jobs:
                keep_reserve(engine)
            _try("deletions", lambda: finish_deletions(engine, settings, artifacts))
            _try("left-files", lambda: delete_left_files(engine, settings, artifacts))
            _try("sizes", lambda: count_results(engine, artifacts))
            is_ended = wait(SWEEP_SECONDS)

    with in_background("housekeeping", keep_house, END_SECONDS):
        yield


@contextmanager
def recording_uses(engine: Engine, uses: KeyUses) -> Iterator[None]:
    """Records in a thread, within the context and at its end, which keys were used."""

    def record(wait: Wait) -> None:
        is_ended = False
        while not is_ended:
            is_ended = wait(USES_SECONDS)
            _try("key-uses", lambda: uses.record(engine))

    with in_background("key-uses", record, END_SECONDS):
        yield


def _try(task: str, act: Callable[[], int | None]) -> None:
    log = structlog.get_logger().bind(task=task)
    try:
        number = act()
    except (OSError, SQLAlchemyError) as error:
        remedy = "restore a backup of the database" if is_damaged(error) else "it is tried again"
        log.warning("housekeeping-failed", reason=type(error).__name__, remedy=remedy)
    else:
        if number:
            log.info("housekeeping", number=number)
