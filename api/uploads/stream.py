"""Streams the body of a request to the file of an upload."""

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from api.http.problems import (
    STORAGE_REASONS,
    Problem,
    bad_request,
    conflict,
    gone,
    not_found,
    too_large,
)
from api.uploads.quota import Quota, beyond_quota
from api.uploads.store import Upload, advance, appending, get_upload, write_all

WRITE_BYTES = 1 << 20
RECORD_BYTES = 64 << 20
RETRY_AFTER = 60
LENGTH = re.compile(r"[0-9]{1,18}")
RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


@dataclass(frozen=True)
class Span:
    """The bytes of an upload that a request declares to contain."""

    start: int
    end: int | None = None  # position after the last byte; None if not declared
    total: int | None = None  # bytes of the whole upload; None if not declared


def read_span(content_range: str | None, offset: int | None) -> Span:
    """The span in the header `Content-Range` or the parameter `offset`; by default from byte 0."""
    if content_range is None:
        return Span(offset or 0)
    match = RANGE.fullmatch(content_range.strip())
    if match is None:
        raise _invalid_range(f"{content_range[:100]!r} is not a range")
    start, end = int(match[1]), int(match[2]) + 1
    total = None if match[3] == "*" else int(match[3])
    if end <= start or (total is not None and end > total) or offset not in (None, start):
        raise _invalid_range(f"the range {content_range[:100]!r} is contradictory")
    return Span(start, end, total)


def _invalid_range(detail: str) -> Problem:
    return bad_request(
        detail,
        "send `Content-Range: bytes FIRST-LAST/TOTAL`, or `?offset=FIRST`",
        field="Content-Range",
    )


def mismatch(upload: Upload, detail: str) -> Problem:
    """A conflict that says where to resume."""
    return conflict(
        detail,
        f"read the state of the upload again and resume at byte {upload.received:,}",
        headers={"Upload-Offset": str(upload.received)},
    )


def refuse_too_long(span: Span, content_length: str | None, limit: int) -> None:
    """Refuses a body by its declared length, before any of it is read."""
    length = int(content_length) if content_length and LENGTH.fullmatch(content_length) else 0
    if max(span.start + length, span.end or 0) > limit:
        raise _too_long(span, limit)


@dataclass(frozen=True)
class UploadLimits:
    """How large an upload may become."""

    size: int  # number of bytes
    require_space: Callable[[int], None]  # raises an OSError where there is none for so many
    quota: Quota | None = None  # of its owner; None where the size is reserved already


async def receive(
    engine: Engine,
    upload: Upload,
    path: Path,
    body: AsyncIterator[bytes],
    span: Span,
    limits: UploadLimits,
) -> int:
    """Appends a body to an upload; what arrives is kept even if the rest does not.

    Gives the number of bytes received so far.
    """

    def confirm() -> None:
        """Checks the upload again, now that its file is locked."""
        current = get_upload(engine, upload.owner, upload.id)
        if current is None:
            path.unlink(missing_ok=True)
            raise not_found("upload", upload.id)
        if current.received != span.start or current.state != "open":
            detail = f"the upload is {current.state} with {current.received:,} bytes"
            raise mismatch(current, detail)

    with ExitStack() as stack:
        opened = appending(path, span.start, confirm)
        file = await run_in_threadpool(_enter, stack, opened, upload)

        def record(received: int) -> int:
            return advance(engine, upload.id, received, limits.quota)

        allowed = await run_in_threadpool(record, span.start)
        writer = _Writer(file, span.start, record, limits.require_space, limits.quota, allowed)
        try:
            try:
                await _write_body(writer, body, span, limits.size)
            finally:
                # Also when the server is stopping: the client need not send the bytes again.
                with anyio.CancelScope(shield=True):
                    await run_in_threadpool(writer.record)
        except ClientDisconnect:
            raise mismatch(upload, "the request ended early") from None
        except OSError as error:
            raise _disk_problem(error, writer.recorded) from error
    return writer.written


def _enter(stack: ExitStack, opened: AbstractContextManager[int], upload: Upload) -> int:
    try:
        return stack.enter_context(opened)
    except BlockingIOError:
        raise mismatch(upload, "another request is sending this upload") from None
    except ValueError:
        raise gone(
            "bytes that had arrived are lost", "delete the upload and send it again"
        ) from None
    except OSError as error:
        raise _disk_problem(error, upload.received) from error


async def _write_body(
    writer: "_Writer", body: AsyncIterator[bytes], span: Span, limit: int
) -> None:
    pending = bytearray()
    end = limit if span.end is None else min(span.end, limit)
    try:
        async for piece in body:
            pending += piece
            if writer.written + len(pending) > end:
                del pending[end - writer.written :]
                raise _too_long(span, limit)
            if len(pending) >= WRITE_BYTES:
                data = bytes(pending)
                pending.clear()
                await run_in_threadpool(writer.write, data)
    finally:
        if pending:
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(writer.write, bytes(pending))
    if span.end is not None and writer.written < span.end:
        raise bad_request(
            f"the body ended {span.end - writer.written:,} bytes before its range",
            f"resume at byte {writer.written:,}",
            headers={"Upload-Offset": str(writer.written)},
        )


@dataclass
class _Writer:
    """Writes to the file of an upload."""

    file: int  # descriptor, at the position to resume at
    written: int  # bytes of the file
    # Called with the number of bytes that are safely on disk; says how many may be.
    on_synced: Callable[[int], int]
    require_space: Callable[[int], None]  # raises an OSError where there is none for so many
    quota: Quota | None  # of the owner, where the upload has none of it reserved
    allowed: int  # bytes that the file may have by this quota
    recorded: int = 0  # bytes in the last call of `on_synced`

    def __post_init__(self) -> None:
        self.recorded = self.written

    def write(self, data: bytes) -> None:
        self.require_space(len(data))
        if self.quota is not None and self.written + len(data) > self.allowed:
            raise beyond_quota(self.quota, self.written)
        write_all(self.file, data)
        self.written += len(data)
        if self.written - self.recorded >= RECORD_BYTES:
            self.record()

    def record(self) -> None:
        if self.written == self.recorded:
            return
        os.fsync(self.file)
        self.allowed = self.on_synced(self.written)
        self.recorded = self.written


def _too_long(span: Span, limit: int) -> Problem:
    if span.end is not None and span.end <= limit:
        return bad_request(
            "the body is longer than its range",
            "send as many bytes as the range has",
            field="Content-Range",
            headers={"Connection": "close"},
        )
    return too_large(
        f"the upload would have more than {limit:,} bytes",
        "announce the right size, or send a smaller dataset",
        headers={"Connection": "close"},
    )


def _disk_problem(error: OSError, received: int) -> Problem:
    """A problem for a file that cannot be written."""
    is_full = error.errno in STORAGE_REASONS
    return Problem(
        507 if is_full else 503,
        "storage" if is_full else "unavailable",
        "the disk is full" if is_full else "the file cannot be written",
        "delete uploads or finished jobs, tell the operator, or wait, then resume at byte "
        f"{received:,}",
        headers={"Retry-After": str(RETRY_AFTER), "Upload-Offset": str(received)},
    )
