"""The body of a request, written to an upload's file as it arrives."""

import errno
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from api.http.problems import Problem, not_found
from api.uploads.files import appending, write_all
from api.uploads.store import Upload, advance, get_upload

AT_ONCE = 1 << 20
NOTED_EVERY = 64 << 20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RETRY_AFTER = 60
LENGTH = re.compile(r"[0-9]{1,18}")
RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


@dataclass(frozen=True)
class Span:
    """Which bytes of an upload a request says to bring.

    Attributes:
        start: The first one.
        end: One after the last; None where it does not say.
        total: Bytes of the whole upload; None where it does not say.
    """

    start: int
    end: int | None = None
    total: int | None = None


def read_span(content_range: str | None, offset: int | None) -> Span:
    """What the header `Content-Range` or the parameter `offset` says; the beginning without both.

    Raises:
        Problem: The header is of another form, or both differ.
    """
    if content_range is None:
        return Span(offset or 0)
    found = RANGE.fullmatch(content_range.strip())
    if found is None:
        raise _wrong_range(f"{content_range[:100]!r} is no range")
    start, end = int(found[1]), int(found[2]) + 1
    total = None if found[3] == "*" else int(found[3])
    if end <= start or (total is not None and end > total) or offset not in (None, start):
        raise _wrong_range(f"the range {content_range[:100]!r} does not fit")
    return Span(start, end, total)


def _wrong_range(detail: str) -> Problem:
    return Problem(
        400,
        "bad-request",
        detail,
        "send `Content-Range: bytes FIRST-LAST/TOTAL`, or `?offset=FIRST`",
        field="Content-Range",
    )


def mismatch(upload: Upload, detail: str) -> Problem:
    """A conflict that says where to go on."""
    return Problem(
        409,
        "conflict",
        detail,
        f"ask again how much is there and go on at byte {upload.received:,}",
        headers={"Upload-Offset": str(upload.received)},
    )


def refuse_too_long(span: Span, content_length: str | None, limit: int) -> None:
    """Refuses a body by what it says of its length, before any of it is read.

    Raises:
        Problem: It would be too long.
    """
    length = int(content_length) if content_length and LENGTH.fullmatch(content_length) else 0
    if max(span.start + length, span.end or 0) > limit:
        raise _too_long(span, limit)


async def receive(
    engine: Engine, upload: Upload, path: Path, body: AsyncIterator[bytes], span: Span, limit: int
) -> int:
    """Appends a body to an upload. What arrived counts, also if the rest never does.

    Args:
        engine: The database.
        upload: As it was when the request came.
        path: Of its file.
        body: Arrives piece by piece.
        span: What the request says of it.
        limit: Bytes that the whole upload may have.

    Returns:
        Bytes that are there now.

    Raises:
        Problem: The offset is not the right one, another request is sending it, the body is too
            long or ended early, or the disk is full.
    """
    with ExitStack() as stack:
        confirm = partial(_confirm, engine, upload, path, span.start)
        opened = appending(path, span.start, confirm)
        file = await run_in_threadpool(_enter, stack, opened, upload)
        writer = _Writer(file, span.start, lambda received: advance(engine, upload.id, received))
        try:
            await _write_and_note(writer, body, span, limit)
        except ClientDisconnect:
            raise mismatch(upload, "the request ended early") from None
        except OSError as error:
            raise _disk_problem(error, writer.noted) from error
    return writer.written


def _confirm(engine: Engine, upload: Upload, path: Path, start: int) -> None:
    """Looks again, now that nobody else can write."""
    present = get_upload(engine, upload.owner, upload.id)
    if present is None:
        path.unlink(missing_ok=True)
        raise not_found("upload", upload.id)
    if present.received != start or present.state != "open":
        raise mismatch(present, f"the upload is {present.state} with {present.received:,} bytes")


def _enter(stack: ExitStack, opened: AbstractContextManager[int], upload: Upload) -> int:
    try:
        return stack.enter_context(opened)
    except BlockingIOError:
        raise mismatch(upload, "another request is sending this upload") from None
    except ValueError:
        raise Problem(
            410, "gone", "bytes that had arrived are lost", "delete it and upload it again"
        ) from None
    except OSError as error:
        raise _disk_problem(error, upload.received) from error


async def _write_and_note(
    writer: "_Writer", body: AsyncIterator[bytes], span: Span, limit: int
) -> None:
    try:
        await _write_body(writer, body, span, limit)
    finally:
        # Also when the server stops meanwhile, so that the client need not send it again.
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(writer.note)


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
            if len(pending) >= AT_ONCE:
                data = bytes(pending)
                pending.clear()
                await run_in_threadpool(writer.write, data)
    finally:
        if pending:
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(writer.write, bytes(pending))
    if span.end is not None and writer.written < span.end:
        raise Problem(
            400,
            "bad-request",
            f"the body ended {span.end - writer.written:,} bytes before its range",
            f"go on at byte {writer.written:,}",
            headers={"Upload-Offset": str(writer.written)},
        )


@dataclass
class _Writer:
    """Writes an upload's file.

    Attributes:
        file: Descriptor of it, where to go on.
        written: Bytes that the file has.
        keep: Called with the bytes that are safe on disk.
        noted: Bytes as last told.
    """

    file: int
    written: int
    keep: Callable[[int], None]
    noted: int = 0

    def __post_init__(self) -> None:
        self.noted = self.written

    def write(self, data: bytes) -> None:
        write_all(self.file, data)
        self.written += len(data)
        if self.written - self.noted >= NOTED_EVERY:
            self.note()

    def note(self) -> None:
        if self.written == self.noted:
            return
        os.fsync(self.file)
        self.keep(self.written)
        self.noted = self.written


def _too_long(span: Span, limit: int) -> Problem:
    if span.end is not None and span.end <= limit:
        return Problem(
            400,
            "bad-request",
            "the body is longer than its range",
            "send as many bytes as the range has",
            field="Content-Range",
            headers={"Connection": "close"},
        )
    return Problem(
        413,
        "too-large",
        f"the upload would have more than {limit:,} bytes",
        "announce the right size, or send a smaller dataset or several",
        headers={"Connection": "close"},
    )


def _disk_problem(error: OSError, received: int) -> Problem:
    """For a file that cannot be written."""
    reason = "the disk is full" if error.errno in NO_SPACE else "the file cannot be written"
    return Problem(
        503,
        "unavailable",
        reason,
        f"tell the operator, or wait, then go on at byte {received:,}",
        headers={"Retry-After": str(RETRY_AFTER), "Upload-Offset": str(received)},
    )
