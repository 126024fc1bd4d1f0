"""What takes several requests: following a job, pages, uploads, downloads."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, TypeVar, Unpack, get_args

import httpx2

from difficulty_service.base.errors import ServiceError
from difficulty_service.base.files import file_sha256
from difficulty_service.bodies.comparisons import ComparisonCreate, ComparisonPublic
from difficulty_service.bodies.jobs import JobEvent, JobPublic, State
from difficulty_service.bodies.marks import MarkPublic
from difficulty_service.bodies.results import ScoreRow, UnreadableImage
from difficulty_service.bodies.service import ProblemSchema
from difficulty_service.bodies.uploads import UploadCreate, UploadFormat, UploadPublic
from difficulty_service.client import requests
from difficulty_service.client.requests import Request, ScoreFilter
from difficulty_service.client.steps import (
    PAUSES,
    Give,
    Operation,
    Pause,
    Read,
    Series,
    do,
    from_problem,
    out_of_reach,
    perform,
    send,
)

if TYPE_CHECKING:
    from difficulty_service.interface.scores import Scores

Page = TypeVar("Page")
Item = TypeVar("Item")
Cursor = TypeVar("Cursor", str, int)

PART_BYTES = 8 << 20
"""Bytes that a request of an upload sends."""

LONGEST_PAGE = 1000

STEADY_SECONDS = 10.0
"""A stream that lasts longer was achieved, even if it had no event."""


class _Patience:
    """Pauses between attempts that achieve nothing; gives up after the last of `PAUSES`."""

    def __init__(self) -> None:
        self._left = list(PAUSES)

    def renew(self) -> None:
        """Notes that something was achieved."""
        self._left = list(PAUSES)

    def pause(self, error: ServiceError) -> Pause:
        """The next pause; raises the error where there is none left."""
        if not self._left:
            raise error
        return Pause(self._left.pop(0))


# Jobs


def events(job_id: str, *, after: int = 0) -> Series[JobEvent]:
    """What happens to a job, as it happens, until it ends.

    After a broken connection it goes on with the event that follows.

    Args:
        job_id: The job.
        after: Id of the last event that is known; 0 for none.
    """
    patience = _Patience()
    while True:
        request, begun = requests.follow(job_id, after), time.monotonic()
        try:
            response = yield from send(request, is_stream=True)
            if response.status_code == HTTPStatus.NO_CONTENT:
                return
            while (received := (yield Read())) is not None:
                if received.event == "problem":
                    raise from_problem(ProblemSchema.model_validate_json(received.data))
                if not received.data:
                    continue
                values = received.json() | {"id": received.id, "kind": received.event}
                event = JobEvent.model_validate(values)
                after = event.id
                patience.renew()
                yield Give(event)
                if event.is_last:
                    return
            error = ServiceError("the service ended the stream of events", "ask for the job again")
        except httpx2.TransportError as failure:
            error = out_of_reach(request, failure)
        if time.monotonic() - begun > STEADY_SECONDS:
            patience.renew()
        yield patience.pause(error)


def wait(job_id: str) -> Operation[JobPublic]:
    """The job, once it has ended, however it did; `state` says how."""
    yield from events(job_id)
    return (yield from perform(requests.job(job_id)))


def delete(job_id: str) -> Operation[None]:
    """Deletes a job with its files; one that has not ended is cancelled first."""
    while not (yield from perform(requests.remove_job(job_id))):
        yield from wait(job_id)


def jobs(*, state: State | None = None, owner: str | None = None) -> Series[JobPublic]:
    """Jobs, newest first; those of another key with the scope read-all."""

    def page(before: str | None) -> Operation[tuple[list[JobPublic], str | None]]:
        asked = requests.job_page(state=state, owner=owner, limit=200, before=before)
        answer = yield from perform(asked)
        return answer.jobs, answer.next

    return _all(page)


# Results


def samples(
    job_id: str,
    *,
    sort: str | None = None,
    columns: Mapping[str, str] | None = None,
    **conditions: Unpack[ScoreFilter],
) -> Series[ScoreRow]:
    """Every sample that fulfils the conditions with its scores, in the order `sort`.

    `columns` are conditions on columns as for `score_page`: `{"is.image_fault": "(some)"}` for the
    images with a fault.
    """

    def page(after: str | None) -> Operation[tuple[list[ScoreRow], str | None]]:
        asked = requests.score_page(
            job_id, sort=sort, limit=LONGEST_PAGE, after=after, columns=columns, **conditions
        )
        answer = yield from perform(asked)
        return answer.samples, answer.next

    return _all(page)


def doubtful(
    job_id: str,
    *,
    columns: Mapping[str, str] | None = None,
    **conditions: Unpack[ScoreFilter],
) -> Series[ScoreRow]:
    """The samples with a doubtful label, the most doubtful first, whether they are marked or not.

    A condition such as `mark="none"` leaves out what is marked; `columns` are as for `samples`.
    """
    conditions.setdefault("margin", "0")
    return samples(job_id, sort="doubtful", columns=columns, **conditions)


def errors(job_id: str) -> Series[UnreadableImage]:
    """What has no score, with reasons, in the order of the dataset."""

    def page(after: int | None) -> Operation[tuple[list[UnreadableImage], int | None]]:
        answer = yield from perform(requests.error_page(job_id, limit=LONGEST_PAGE, after=after))
        return answer.errors, answer.next

    return _all(page)


def marks(job_id: str) -> Series[MarkPublic]:
    """The marks of this key, in the order of the score file."""

    def page(after: int | None) -> Operation[tuple[list[MarkPublic], int | None]]:
        answer = yield from perform(requests.mark_page(job_id, limit=LONGEST_PAGE, after=after))
        return answer.marks, answer.next

    return _all(page)


def _all(
    page: Callable[[Cursor | None], Operation[tuple[Iterable[Item], Cursor | None]]],
) -> Series[Item]:
    """The items of one page after the other."""
    after: Cursor | None = None
    while True:
        items, after = yield from page(after)
        for item in items:
            yield Give(item)
        if after is None:
            return


def download(job_id: str, path: str | Path) -> Operation[Path]:
    """Writes the score file of a job, which appears whole or not at all; gives its path.

    What has arrived when a connection breaks is kept beside it, also for a later call.
    """
    path = Path(path)
    job = yield from perform(requests.job(job_id))
    if job.result is None:
        yield from send(requests.score_file(job_id, 0, ""))  # is answered with the reason
        raise ServiceError(f"job {job_id} has just ended", "ask for its score file again")
    digest, size = job.result.scores_sha256, job.result.scores_bytes
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{digest[:16]}.part")
    request_from = partial(requests.score_file, job_id, etag=f'"{digest}"')
    yield from _fill(unfinished, size, request_from)
    if (yield from do(lambda: file_sha256(unfinished))) != digest:
        unfinished.unlink()
        raise ServiceError(
            f"the score file of job {job_id} is not as the service describes it",
            "download it again",
        )
    yield from do(lambda: _publish(unfinished, path))
    return path


def _publish(unfinished: Path, path: Path) -> None:
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)


def _fill(path: Path, size: int, request_from: Callable[[int], Request[None]]) -> Operation[None]:
    """Appends to a file until it has its size, in several requests if need be."""
    patience = _Patience()
    with path.open("ab") as file:
        if file.tell() > size:
            file.truncate(0)
            file.seek(0)
        while file.tell() < size:
            before = file.tell()
            request = request_from(before)
            try:
                yield from _append(file, size, request)
                error = ServiceError(f"{request.path} ended early", "download it again")
            except httpx2.TransportError as failure:
                error = out_of_reach(request, failure)
            if file.tell() > before:
                patience.renew()
            if file.tell() < size:
                yield patience.pause(error)


def _append(file: BinaryIO, size: int, request: Request[None]) -> Operation[None]:
    response = yield from send(request, is_stream=True)
    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        file.truncate(0)
        file.seek(0)
    while file.tell() <= size and (received := (yield Read())) is not None:
        yield from do(partial(file.write, received))


def scores(job_id: str) -> "Operation[Scores]":
    """The scores of a job, in memory."""
    from difficulty_service.interface.scores import open_scores

    with TemporaryDirectory() as folder:
        path = yield from download(job_id, Path(folder, "scores.parquet"))
        return open_scores(path)


def compare(job_id: str, asked: ComparisonCreate) -> Operation[ComparisonPublic]:
    """What is asked of finished jobs, once it is there or has failed; `state` says which.

    Args:
        job_id: The job with the training set, the new version, or the samples to choose from.
        asked: A `LeaksCreate`, `DiffCreate` or `SelectCreate`.
    """
    found = yield from perform(requests.compare_once(job_id, asked))
    pauses = iter(PAUSES)
    while found.state == "running":
        yield Pause(next(pauses, PAUSES[-1]))
        found = yield from perform(requests.comparison(job_id, found.id))
    return found


# Uploads


def upload(
    path: str | Path,
    *,
    upload_id: str | None = None,
    on_progress: Callable[[UploadPublic], object] | None = None,
) -> Operation[UploadPublic]:
    """Sends a dataset, a tar, zip or Parquet file, and gives the complete upload.

    After a broken connection it goes on with the first byte that the service does not have.

    Args:
        path: The file; its ending says what it is.
        upload_id: An upload of this file that was begun before; by default a new one.
        on_progress: Called with the upload after each part.
    """
    path = Path(path)
    size = path.stat().st_size
    if upload_id is None:
        form = UploadCreate(format=_format_of(path), size=size)
        state = yield from perform(requests.create_upload(form))
    else:
        state = yield from perform(requests.upload_status(upload_id))
    if (state.size or size) != size or state.received > size:
        raise ServiceError(
            f"upload {state.id} is of {state.size or state.received:,} bytes, {path} has {size:,}",
            "give the file that it was begun with, or begin a new one",
        )
    with path.open("rb") as file:
        patience = _Patience()
        while state.state == "open":
            before = state.received
            state = yield from _send_part(file, state, size, patience)
            if state.received > before:
                patience.renew()
            if on_progress is not None:
                on_progress(state)
    if state.sha256 != (yield from do(lambda: file_sha256(path))):
        raise ServiceError(
            f"upload {state.id} is not the file {path}, which may have changed meanwhile",
            "delete the upload and send it again",
        )
    return state


def _send_part(
    file: BinaryIO, state: UploadPublic, size: int, patience: _Patience
) -> Operation[UploadPublic]:
    """Sends the next bytes of an upload; gives what has arrived of it, also if they have not."""
    file.seek(state.received)
    part = yield from do(lambda: file.read(PART_BYTES))
    if not part and state.received < size:
        raise ServiceError(
            f"{file.name} has become shorter while it was sent", "delete the upload, begin again"
        )
    try:
        return (yield from perform(requests.send_part(state.id, state.received, part)))
    except ServiceError as error:
        # A part may have arrived although its answer has not, or another request be sending it.
        if error.status not in (None, HTTPStatus.CONFLICT):
            raise
        yield patience.pause(error)
    return (yield from perform(requests.upload_status(state.id)))


def _format_of(path: Path) -> UploadFormat:
    known: dict[str, UploadFormat] = {f".{name}": name for name in get_args(UploadFormat)}
    form = known.get(path.suffix.lower())
    if form is None:
        raise ServiceError(
            f"{path.name} is no upload", f"send a file that ends in {' or '.join(known)}"
        )
    return form
