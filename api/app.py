"""The web application: its routes, its middleware and the resources they use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware

from api.housekeeping import housekeeping
from api.http.api_keys import Authentication
from api.http.browsers import BrowserHeaders
from api.http.fair_queue import FairQueue
from api.http.limits import BodyLimits, limits_of, rate_limiter
from api.http.openapi import with_problems
from api.http.problem_responses import add_handlers
from api.jobs.event_stream import EventStreams
from api.metrics import Metrics
from api.online.models import ScoringModels
from api.online.process import ScoringProcess
from api.pages.rendering import compile_templates
from api.pages.routes import add_pages
from api.request_log import RequestLog
from api.results.maps import Maps
from api.results.score_columns import OpenScores, load_conversions
from api.results.similar_images import SimilarImages
from api.results.thumbnails import AT_ONCE, Thumbnails
from api.routes import events, gaussians, jobs, marks, results, system, thumbnails, uploads
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import connect, migrate
from api.uploads.checking import UploadChecks
from difficulty_service.base.apart import call_apart
from difficulty_service.base.threads import num_workers

ROUTERS = (
    system.router,
    jobs.router,
    events.router,
    results.router,
    thumbnails.router,
    marks.router,
    uploads.router,
    gaussians.router,
)

MAX_PENDING_MARKS = 2
"""Requests of one key that read all marks of a job, at once."""

EVERYWHERE = ("auto", "cpu")
"""Devices that every machine has."""

DESCRIPTION = """Scores how hard each image of a labelled dataset is: larger is harder.

Errors are problem details (RFC 9457): a stable `type`, what is wrong in `detail`, the field at
fault in `field` and what to do in `remedy`.
"""


def create_app(settings: Settings) -> FastAPI:
    """Creates the application, which opens its resources when it is started."""
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
    app.state.metrics = Metrics()
    app.state.stopping = lambda: False
    app.state.event_streams = EventStreams()
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
        await run_in_threadpool(migrate, state.engine)
        state.artifacts = await run_in_threadpool(open_artifacts, settings.artifact_root)
        await run_in_threadpool(require_device, settings.device)
        scorings_at_once = num_workers() + 2
        state.scoring_process = ScoringProcess(settings, scorings_at_once)
        state.thumbnails = Thumbnails(settings, state.engine)
        state.open_scores = OpenScores(settings, state.artifacts)
        state.scoring_models = ScoringModels(state.artifacts, state.scoring_process)
        await run_in_threadpool(compile_templates)
        await run_in_threadpool(load_conversions)
        state.maps = Maps(state.artifacts, state.open_scores)
        state.similar_images = SimilarImages(settings, state.artifacts)
        state.thumbnail_queue = FairQueue("thumbnails", AT_ONCE, settings.max_pending_thumbnails)
        state.scoring_queue = FairQueue(
            "requests to score samples", scorings_at_once, settings.max_pending_scorings
        )
        state.upload_checks = UploadChecks()
        state.marks_queue = FairQueue("requests for all marks of a job", 1, MAX_PENDING_MARKS)
        try:
            with housekeeping(state.engine, settings, state.artifacts, state.upload_checks):
                yield
        finally:
            await run_in_threadpool(state.scoring_process.close)
            await run_in_threadpool(state.thumbnails.close)
            await run_in_threadpool(state.upload_checks.close)
    finally:
        state.engine.dispose()


def require_device(name: str) -> None:
    """Checks that a device can be used, in another process, since that takes torch."""
    if name not in EVERYWHERE:
        call_apart(_choose_device, name)


def _choose_device(name: str) -> None:
    from difficulty_service.backbones.backbone import choose_device

    choose_device(name)
