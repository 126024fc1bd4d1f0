"""Whole files over connections that may break: uploads of datasets, downloads of score files."""

import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, get_args

import httpx2

from difficulty_service.base.errors import ServiceError
from difficulty_service.base.files import file_sha256
from difficulty_service.bodies.jobs import JobPublic
from difficulty_service.bodies.uploads import LONGEST_NAME, UploadCreate, UploadFormat, UploadPublic
from difficulty_service.client.connection import TIMEOUT, Patience, ServiceConnection, out_of_reach

PART_BYTES = 8 << 20
"""Bytes that a request of an upload sends."""

LAST_PART = httpx2.Timeout(TIMEOUT, read=660.0)
"""The answer to the last bytes of an upload may take longer, as the whole is checked before."""


def download(connection: ServiceConnection, job: JobPublic, path: Path) -> None:
    """Writes the score file of a job, which appears whole or not at all.

    What has arrived when a connection breaks is kept beside it, also for a later call.
    """
    if job.result is None:
        with connection.stream("GET", "/v1/jobs/{}/scores.parquet", job.id):
            pass  # the error says why there is none
        raise ServiceError(f"job {job.id} has just ended", "ask for its score file again")
    digest, size = job.result.scores_sha256, job.result.scores_bytes
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{digest[:16]}.part")
    with unfinished.open("ab") as file:
        _fill(connection, file, job.id, size, digest)
    if file_sha256(unfinished) != digest:
        unfinished.unlink()
        raise ServiceError(
            f"the score file of job {job.id} is not as the service describes it",
            "download it again",
        )
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)


def _fill(
    connection: ServiceConnection, file: BinaryIO, job_id: str, size: int, digest: str
) -> None:
    """Appends to the score file until it has its size, in several requests if need be."""
    patience = Patience()
    if file.tell() > size:
        _empty(file)
    while file.tell() < size:
        before = file.tell()
        try:
            _append(connection, file, job_id, size, digest)
            error = ServiceError(f"the score file of job {job_id} ended early", "download it again")
        except httpx2.TransportError as failure:
            error = out_of_reach(failure)
        if file.tell() > before:
            patience.renew()
        if file.tell() < size:
            patience.wait(error)


def _append(
    connection: ServiceConnection, file: BinaryIO, job_id: str, size: int, digest: str
) -> None:
    """Asks for the bytes after those that are there; for the whole if the file has changed."""
    headers = {"Accept-Encoding": "identity"}
    if file.tell():
        headers |= {"Range": f"bytes={file.tell()}-", "If-Range": f'"{digest}"'}
    path = "/v1/jobs/{}/scores.parquet"
    with connection.stream("GET", path, job_id, headers=headers) as response:
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            _empty(file)
        for received in response.iter_bytes():  # chunks of a size would be lost with a connection
            file.write(received)
            if file.tell() > size:
                return


def _empty(file: BinaryIO) -> None:
    file.truncate(0)
    file.seek(0)


def upload(
    connection: ServiceConnection,
    path: Path,
    upload_id: str | None,
    on_progress: Callable[[UploadPublic], object] | None,
) -> UploadPublic:
    """Sends a file, from the first byte on that the service does not have."""
    size = path.stat().st_size
    if upload_id is None:
        name = "".join(filter(str.isprintable, path.name))[-LONGEST_NAME:] or None
        form = UploadCreate(format=_format_of(path), size=size, name=name)
        state = connection.ask(UploadPublic, "POST", "/v1/uploads", body=form)
    else:
        state = connection.ask(UploadPublic, "GET", "/v1/uploads/{}", upload_id)
    if (state.size or size) != size or state.received > size:
        raise ServiceError(
            f"upload {state.id} is of {state.size or state.received:,} bytes, {path} has {size:,}",
            "give the file that it was begun with, or begin a new one",
        )
    with path.open("rb") as file:
        patience = Patience()
        while state.state == "open":
            before = state.received
            state = _send_part(connection, file, state, size, patience)
            if state.received > before:
                patience.renew()
            if on_progress is not None:
                on_progress(state)
    if state.sha256 != file_sha256(path):
        raise ServiceError(
            f"upload {state.id} is not the file {path}, which may have changed meanwhile",
            "delete the upload and send it again",
        )
    return state


def _send_part(
    connection: ServiceConnection,
    file: BinaryIO,
    state: UploadPublic,
    size: int,
    patience: Patience,
) -> UploadPublic:
    """Sends the next bytes of an upload; gives what has arrived of it, also if they have not."""
    file.seek(state.received)
    part = file.read(PART_BYTES)
    if not part and state.received < size:
        raise ServiceError(
            f"{file.name} has become shorter while it was sent", "delete the upload, begin again"
        )
    try:
        return connection.ask(
            UploadPublic,
            "PUT",
            "/v1/uploads/{}",
            state.id,
            params={"offset": state.received},
            headers={"Content-Type": "application/octet-stream"},
            content=part,
            timeout=LAST_PART,
        )
    except ServiceError as error:
        # A part may have arrived although its answer has not, or another request be sending it.
        if error.status not in (None, HTTPStatus.CONFLICT):
            raise
        patience.wait(error)
    return connection.ask(UploadPublic, "GET", "/v1/uploads/{}", state.id)


def _format_of(path: Path) -> UploadFormat:
    known: dict[str, UploadFormat] = {f".{name}": name for name in get_args(UploadFormat)}
    form = known.get(path.suffix.lower())
    if form is None:
        raise ServiceError(
            f"{path.name} is no upload", f"send a file that ends in {' or '.join(known)}"
        )
    return form
