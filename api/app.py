"""The web application: routes and their description, middleware, resources, housekeeping."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import cache
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
from api.http.fair_queue import FairQueue
from api.http.limits import BodyLimits, limits_of, rate_limiter
from api.http.problem_responses import add_handlers
from api.http.problems import CONTENT_TYPE
from api.jobs.default_backbone import settle_default_backbone
from api.jobs.estimate import preview_datasets
from api.jobs.files import count_results, delete_left_files, finish_deletions
from api.metrics import Metrics, RequestLog
from api.online.process import ScoringModels, ScoringProcess
from api.online.words import WordSearch
from api.pages.rendering import compile_templates
from api.pages.routes import add_pages
from api.results.attached_tables import AttachedTables
from api.results.comparisons import Comparisons
from api.results.maps import Maps, SimilarImages
from api.results.open_columns import AttachedColumns, ExplorerColumns, OpenColumns
from api.results.saved_views import ExplorerViews, StoredViews, views_file
from api.results.score_columns import OpenScores, load_conversions
from api.results.searches import Searches
from api.results.thumbnails import AT_ONCE, Thumbnails
from api.results.tsne_maps import TsneMaps
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
from api.routes.events import EventStreams
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import connect, is_damaged, migrate
from api.storage.identity import require_own_artifacts
from api.storage.key_uses import KeyUses
from api.storage.space import keep_reserve
from api.uploads.checking import UploadChecks
from api.uploads.store import complete_received
from difficulty_service.base.apart import Apart, Limits, call_apart
from difficulty_service.base.threads import num_workers
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

COUNTING_BYTES = 4 << 30  # memory of the process that counts samples
KEPT_BYTES = 256 << 20  # memory above which the process that counts samples is replaced
MAX_PENDING_ESTIMATES = 4  # requests of one key, at once
MAX_PENDING_MARKS = 2  # requests of one key that read, or write, all marks of a job, at once
MAX_PENDING_TABLES = 2  # requests of one key that send columns, at once
EVERYWHERE = ("auto", "cpu")  # devices that every machine has
DESCRIPTION = """Scores how hard each image of a labelled dataset is: larger is harder.

Errors are problem details (RFC 9457): a stable `type`, what is wrong in `detail`, the field at
fault in `field` and what to do in `remedy`.
"""


def create_app(settings: Settings, rounds: Rounds | None = None) -> FastAPI:
    """Creates the application, which opens its resources when it is started.

    `rounds` are those of a score file that is explored.
    """
    app = FastAPI(
        title="difficulty",
        version=version("difficulty-service"),
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.settings = settings
    app.state.rounds = rounds
    app.state.metrics = Metrics()
    app.state.stopping = lambda: False  # whether long answers should end
    app.state.event_streams = EventStreams(settings.max_event_streams)
    app.state.key_uses = KeyUses()
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
    app.add_middleware(RequestLog, metrics=app.state.metrics)
    app.add_middleware(CorrelationIdMiddleware)
    for router in ROUTERS:
        app.include_router(router)
    add_pages(app)
    app.openapi = with_problems(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens the resources, upgrades the tables, and closes everything at the end."""
    settings: Settings = app.state.settings
    state = app.state
    state.engine = connect(settings.resolved_database_url.get_secret_value())
    try:
        state.artifacts = await run_in_threadpool(_prepare_storage, state.engine, settings)
        settings = state.settings = await run_in_threadpool(settle_default_backbone, settings)
        if settings.device not in EVERYWHERE:
            # In another process, since that takes torch.
            await run_in_threadpool(call_apart, _choose_device, settings.device)
        scorings_at_once = num_workers() + 2
        state.scoring_process = ScoringProcess(settings, scorings_at_once)
        state.thumbnails = Thumbnails(settings, state.engine)
        state.open_scores = OpenScores(settings, state.artifacts)
        files = (
            AttachedColumns(state.engine, settings, state.artifacts)
            if settings.takes_jobs
            else ExplorerColumns(settings)
        )
        state.open_columns = OpenColumns(files, state.open_scores)
        state.attached_tables = AttachedTables(
            state.engine, settings, state.artifacts, state.open_scores
        )
        state.saved_views = (
            StoredViews(state.engine)
            if settings.takes_jobs
            else ExplorerViews(views_file(settings))
        )
        state.scoring_models = ScoringModels(state.artifacts, state.scoring_process)
        await run_in_threadpool(compile_templates)
        await run_in_threadpool(load_conversions)
        state.maps = Maps(state.artifacts, state.open_scores)
        state.similar_images = SimilarImages(settings, state.artifacts)
        weights = None if state.rounds is None else state.rounds.explored.weights
        state.word_search = WordSearch(state.artifacts, state.scoring_process, weights)
        state.tsne_maps = TsneMaps(
            state.engine,
            settings,
            state.artifacts,
            state.maps,
            state.similar_images,
            state.open_scores,
        )
        state.comparisons = Comparisons(state.engine, settings, state.artifacts)
        state.upload_checks = UploadChecks(settings.upload_check_seconds)
        state.previews = Apart(preview_datasets, limits=Limits(COUNTING_BYTES, KEPT_BYTES))
        _open_queues(app, settings, scorings_at_once)
        try:
            keeping = state.rounds.keeping_marks(state.engine) if state.rounds else nullcontext()
            house = housekeeping(state.engine, settings, state.artifacts, state.upload_checks)
            with house, keeping, recording_uses(state.engine, state.key_uses):
                yield
        finally:
            await run_in_threadpool(state.tsne_maps.close)
            await run_in_threadpool(state.comparisons.close)
            await run_in_threadpool(state.scoring_process.close)
            await run_in_threadpool(state.thumbnails.close)
            await run_in_threadpool(state.upload_checks.close)
            await run_in_threadpool(state.attached_tables.close)
            await run_in_threadpool(state.previews.close)
    finally:
        state.engine.dispose()


def _open_queues(app: FastAPI, settings: Settings, scorings_at_once: int) -> None:
    """Opens the queues in which clients have turns, each for work of one purpose."""
    state = app.state
    state.thumbnail_queue = FairQueue("thumbnails", AT_ONCE, settings.max_pending_thumbnails)
    state.scoring_queue = FairQueue(
        "requests to score samples", scorings_at_once, settings.max_pending_scorings
    )
    state.estimate_queue = FairQueue("estimates", 1, MAX_PENDING_ESTIMATES)
    state.tables_queue = FairQueue("tables of columns", 1, MAX_PENDING_TABLES)
    state.searches = Searches(settings.filter_seconds, lambda: state.stopping())
    state.marking_queue = FairQueue("requests to mark many samples", 1, MAX_PENDING_MARKS)
    state.marks_queue = FairQueue("requests for all marks of a job", 1, MAX_PENDING_MARKS)


def _prepare_storage(engine: Engine, settings: Settings) -> Artifacts:
    """Upgrades the tables, and opens the artifacts, which have to be those of the database."""
    migrate(engine)
    artifacts = open_artifacts(settings.artifact_root)
    if settings.takes_jobs:
        keep_reserve(engine)
        require_own_artifacts(engine, artifacts)
    return artifacts


def _choose_device(name: str) -> None:
    from difficulty_service.backbones.backbone import choose_device

    choose_device(name)


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
def housekeeping(
    engine: Engine, settings: Settings, artifacts: Artifacts, checks: UploadChecks
) -> Iterator[None]:
    """Keeps house in a thread within the context."""

    def keep_house(wait: Wait) -> None:
        _try("uploads", lambda: complete_received(engine, settings, checks))
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
