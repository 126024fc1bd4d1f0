"""The service itself: health, readiness, metrics and the backbones it offers."""

from collections.abc import Callable
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, Query, Request, Response
from pyarrow.fs import FileType
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from api.http.api_keys import ReadKey, require_scope
from api.http.principals import Principal
from api.jobs.backbones import offered_backbones
from api.jobs.estimate import estimate_job
from api.jobs.folders import MOST_ENTRIES, list_roots, look_into
from api.jobs.queue import live_workers
from api.metrics import CONTENT_TYPE
from api.routes.callers import Reader, Writer
from api.services import services_of
from api.settings import MEBIBYTE, Settings
from api.storage.artifacts import Artifacts
from api.storage.database import require_current
from api.storage.space import has_space
from api.uploads.quota import find_usage
from difficulty_service.backbones import BackboneListing, list_backbones
from difficulty_service.backbones.text_encoders import (
    BUILTIN_TEXT,
    modality_of,
)
from difficulty_service.bodies.jobs import JobCreate, JobEstimate
from difficulty_service.bodies.service import (
    BackbonePublic,
    Backbones,
    FolderPage,
    Health,
    Readiness,
    ServicePart,
    Usage,
)

router = APIRouter(tags=["service"])

NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": Readiness, "description": "A part is not ready; the body says which"}
}
METRICS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/healthz", summary="Is the server running?")
async def get_health() -> Health:
    """Reports whether the process is running; needs no key and no database."""
    return Health()


@router.get("/readyz", responses=NOT_READY, summary="Can jobs be accepted and run?")
def get_readiness(request: Request, response: Response) -> Readiness:
    """Checks database, artifacts, workers and free space; needs no key."""
    services = services_of(request)
    parts = {
        "database": _part(lambda: _check_database(services.engine)),
        "artifacts": _part(lambda: _check_artifacts(services.artifacts)),
        "workers": _part(lambda: _check_workers(services.engine, services.settings)),
        "space": _part(lambda: _check_space(services.settings)),
    }
    missing = [name for name, part in parts.items() if not part.ready]
    if missing:
        response.status_code = 503
    return Readiness(ready=not missing, missing=missing, parts=parts)


@router.get(
    "/metrics", responses=METRICS, response_class=Response, summary="Metrics for Prometheus"
)
async def get_metrics(
    request: Request, _key: Annotated[Principal, Depends(require_scope("read-all"))]
) -> Response:
    """Requests, problems, jobs by state, age of the oldest queued one, workers, images.

    They are those of all keys, and need the scope read-all.
    """
    services = services_of(request)
    lease = services.settings.lease
    text = await run_in_threadpool(services.metrics.render, services.engine, lease)
    return Response(text, media_type=CONTENT_TYPE)


@router.get("/v1/backbones", summary="List the backbones")
def get_backbones(request: Request, _key: ReadKey) -> Backbones:
    """The backbones that jobs may ask for, and whether their weights are on this machine."""
    settings = services_of(request).settings
    known = {each.name: each for each in list_backbones()}
    listed = [known.get(name) or _of_library(name) for name in offered_backbones(settings)]
    defaults = {settings.default_backbone, BUILTIN_TEXT}
    return Backbones(
        backbones=[BackbonePublic(**vars(each), default=each.name in defaults) for each in listed]
    )


@router.get("/v1/usage", summary="What the key keeps, and how much it may")
def get_usage(caller: Reader) -> Usage:
    """Counted anew at each request."""
    services = caller.services
    return find_usage(services.engine, services.settings, caller.key.owner)


@router.get("/v1/folders", summary="Look for datasets in a root")
def get_folders(
    caller: Writer,
    root: Annotated[
        str, Query(max_length=100, description="Without it, the roots are listed")
    ] = "",
    path: Annotated[str, Query(max_length=2000)] = "",
    start: Annotated[int, Query(ge=0, le=MOST_ENTRIES)] = 0,
) -> FolderPage:
    """The sub-folders, tables and archives of one folder, with what each folder holds."""
    settings = caller.key.within(caller.services.settings)
    if not root and not path:
        return list_roots(settings, start)
    return look_into(settings, root, path, start)


@router.post(
    "/v1/estimates",
    tags=["jobs"],
    summary="Preview a dataset, and estimate its job",
)
async def estimate(body: JobCreate, caller: Writer) -> JobEstimate:
    """Says how the dataset would be read and how long it would take, as far as that is known.

    Takes the body of a job and queues none; lists the dataset for some seconds at most.
    """
    services = caller.services
    arguments = (body, caller.key, services.settings, services.engine, services.previews)
    return await caller.in_turn(services.queues.estimates, estimate_job, *arguments)


def _of_library(name: str) -> BackboneListing:
    network = f"a pretrained network of {name.partition(':')[0]}"
    return BackboneListing(name, network, None, "any", modality_of(name))


def _part(check: Callable[[], ServicePart]) -> ServicePart:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the part is not ready
        # The cause may name hosts and folders, which callers must not see.
        structlog.get_logger().warning("not-ready", exc_info=error)
        return ServicePart(ready=False, detail="does not answer; the log has the reason")


def _check_database(engine: Engine) -> ServicePart:
    require_current(engine)
    return ServicePart(ready=True, detail="answers")


def _check_artifacts(artifacts: Artifacts) -> ServicePart:
    root = artifacts.root
    info = root.filesystem.get_file_info(root.path)
    # An object store has a folder only as long as there is something in it.
    if root.is_local and info.type != FileType.Directory:
        return ServicePart(
            ready=False, detail="the folder is gone; create it, or restart the server"
        )
    return ServicePart(ready=True, detail="can be read")


def _check_space(settings: Settings) -> ServicePart:
    floor = settings.min_free_bytes // MEBIBYTE
    if has_space(settings):
        return ServicePart(ready=True, detail=f"at least {floor:,} MiB are free")
    return ServicePart(
        ready=False,
        detail=f"less than {floor:,} MiB are free; delete uploads and finished jobs, or free space "
        "on the disks of the service",
    )


def _check_workers(engine: Engine, settings: Settings) -> ServicePart:
    number = len(live_workers(engine, settings.lease))
    if number:
        return ServicePart(ready=True, detail=f"{number} alive")
    return ServicePart(
        ready=False,
        detail=f"no heartbeat in the last {settings.lease:g} s; run `difficulty worker`",
    )
