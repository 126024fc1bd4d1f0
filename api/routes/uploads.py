"""Uploads of datasets: one file each, in one or several requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from api.http.api_keys import KeyWatch
from api.http.problems import conflict, not_found, too_large
from api.routes.callers import Caller, Reader, Writer
from api.storage.space import require_space
from api.uploads import store
from api.uploads.checking import UploadChecks
from api.uploads.quota import quota_of
from api.uploads.store import Upload
from api.uploads.stream import UploadLimits, mismatch, read_span, receive, refuse_too_long
from difficulty_service.base.files import file_sha256
from difficulty_service.bodies.uploads import LARGEST, UploadCreate, UploadList, UploadPublic

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])

PAGE = 100
OFFSET_HEADER = {"Upload-Offset": {"description": "Bytes received", "schema": {"type": "integer"}}}
BODY = {
    "requestBody": {
        "description": "The bytes of the file from the offset on",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "",
    status_code=201,
    summary="Announce an upload",
    responses={201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
)
def create(body: UploadCreate, response: Response, caller: Writer) -> UploadPublic:
    """Its bytes are then sent with PUT, at once or in parts, to the address in `Location`."""
    services = caller.services
    engine, settings = services.engine, services.settings
    if body.size is not None and body.size > settings.max_upload_bytes:
        raise too_large(
            f"{body.size:,} bytes are more than the {settings.max_upload_bytes:,} allowed",
            "send a smaller dataset or several",
            field="size",
        )
    require_space(settings)
    quota = quota_of(engine, settings, caller.key.owner)
    upload = store.create_upload(
        engine, caller.key.owner, body.format, body.size, quota, name=body.name
    )
    response.headers["Location"] = _address(upload)
    return _public(upload, response)


@router.get("", summary="List uploads")
def list_all(
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
    before: Annotated[str | None, Query(max_length=32, pattern="^[0-9a-z]+$")] = None,
) -> UploadList:
    """Newest first; `before` is the id of the last upload of the previous page."""
    page = store.list_uploads(caller.services.engine, caller.key.owner, limit, before)
    return UploadList(uploads=[_public(upload) for upload in page])


@router.get(
    "/{upload_id}", summary="How much has arrived", responses={200: {"headers": OFFSET_HEADER}}
)
@router.head("/{upload_id}", summary="How much has arrived, in the header Upload-Offset")
def read(upload_id: str, response: Response, caller: Reader) -> UploadPublic:
    """The upload is resumed at byte `received`."""
    return _public(_find(caller, upload_id), response)


@router.put(
    "/{upload_id}",
    summary="Send bytes of an upload",
    openapi_extra=BODY,
    responses={200: {"headers": OFFSET_HEADER}, 409: {}, 410: {}},
)
async def append(
    upload_id: str,
    response: Response,
    caller: Writer,
    offset: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
    content_range: Annotated[str | None, Header(max_length=200)] = None,
    last: Annotated[bool, Query(alias="complete", description="These are the last bytes")] = False,  # noqa: FBT002
) -> UploadPublic:
    """Appends the body at the offset; on a conflict, `Upload-Offset` says where to resume.

    The file is checked once it is complete, by its size or `complete`; then jobs may use it.
    """
    upload = await run_in_threadpool(_find, caller, upload_id)
    services = caller.services
    engine, settings = services.engine, services.settings
    span = read_span(content_range, offset)
    if None not in (upload.size, span.total) and upload.size != span.total:
        raise mismatch(upload, f"the size was {upload.size:,} bytes, now it is {span.total:,}")
    size = span.total if upload.size is None else upload.size
    path = store.upload_path(settings, upload.id, upload.format)
    limit = min(settings.max_upload_bytes, size or settings.max_upload_bytes)
    refuse_too_long(span, caller.request.headers.get("content-length"), limit)
    body = KeyWatch(engine, caller.key).watched(caller.request.stream())
    # One whose size was announced has it reserved.
    quota = None
    if upload.size is None:
        quota = await run_in_threadpool(quota_of, engine, settings, caller.key.owner)
    limits = UploadLimits(limit, partial(require_space, settings), quota)
    received = await receive(engine, upload, path, body, span, limits)
    upload = replace(upload, received=received)
    if received == size or last:
        checks = services.upload_checks
        upload = await run_in_threadpool(_complete, engine, upload, path, size, checks)
    return _public(upload, response)


@router.delete(
    "/{upload_id}", status_code=204, summary="Delete an upload", responses={404: {}, 409: {}}
)
def remove(upload_id: str, caller: Writer) -> None:
    """Also deletes its bytes; refused while it is being sent or an unfinished job needs it."""
    upload = _find(caller, upload_id)
    services = caller.services
    engine, settings = services.engine, services.settings
    if store.is_needed(engine, upload.id):
        raise conflict("an unfinished job needs the upload", "cancel the job or wait for it")
    with _exclusive(upload, store.upload_path(settings, upload.id, upload.format)):
        store.delete_upload_file(settings, upload.id, upload.format)
        store.delete_upload(engine, upload.id)


@contextmanager
def _exclusive(upload: Upload, path: Path) -> Iterator[None]:
    """Locks the file of an upload within the context."""
    try:
        with store.locked(path):
            yield
    except BlockingIOError:
        raise mismatch(upload, "another request is sending this upload") from None


def _complete(
    engine: Engine, upload: Upload, path: Path, size: int | None, checks: UploadChecks
) -> Upload:
    """Checks the file and marks the upload as complete."""
    if size is not None and upload.received != size:
        raise mismatch(upload, f"{size - upload.received:,} of {size:,} bytes are missing")
    with _exclusive(upload, path):
        if path.stat().st_size != upload.received:
            raise mismatch(upload, "more bytes have arrived in the meantime")
        checks.check(path, upload.format)
        return store.complete(engine, upload.id, upload.received, file_sha256(path))


def _find(caller: Caller, upload_id: str) -> Upload:
    upload = store.get_upload(caller.services.engine, caller.key.owner, upload_id)
    if upload is None:
        raise not_found("upload", upload_id)
    return upload


def _address(upload: Upload) -> str:
    return f"{router.prefix}/{upload.id}"


def _public(upload: Upload, response: Response | None = None) -> UploadPublic:
    if response is not None:
        response.headers["Upload-Offset"] = str(upload.received)
    created_at = datetime.fromtimestamp(upload.created_at, UTC)
    links = {"self": _address(upload)}
    return UploadPublic(**vars(upload) | {"created_at": created_at, "links": links})
