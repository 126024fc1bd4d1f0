"""Bodies are counted as they arrive: what a request says of its length may be missing or wrong."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.problem_responses import answer
from api.http.problems import Problem
from api.settings import Settings

UPLOAD = re.compile(r"/v1/uploads/[^/]+/?")


@dataclass(frozen=True)
class BodyLimits:
    """Middleware that answers 413 to a body that is too large, before or while it is read.

    Attributes:
        app: What is behind it.
        limit_of: Bytes that the body of a request may have.
    """

    app: ASGIApp
    limit_of: Callable[[Scope], int]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on a request, and its body up to the limit."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope)
        if _declared(scope) > limit:
            await answer(too_large(limit), scope)(scope, receive, send)
            return
        await _Counted(scope, receive, send, limit).run(self.app)


class _Counted:
    """One request whose body is counted."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limit = limit
        self._received = 0
        self._started = False

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except Problem:
            if not self._exceeded or self._started:
                raise
        if self._exceeded and not self._started:
            response = answer(too_large(self._limit), self._scope)
            await response(self._scope, self._receive, self._send)

    @property
    def _exceeded(self) -> bool:
        return self._received > self._limit

    async def receive(self) -> Message:
        if self._exceeded:
            raise too_large(self._limit)
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._exceeded:
            raise too_large(self._limit)
        return message

    async def send(self, message: Message) -> None:
        # Whoever parses the body may take the exception for a parse error and answer 400.
        if self._exceeded and not self._started:
            return
        self._started = True
        await self._send(message)


def _declared(scope: Scope) -> int:
    """What Content-Length says; 0 where it says nothing that is a number."""
    values = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    return max((int(value) for value in values if re.fullmatch(rb"\d{1,18}", value)), default=0)


def too_large(limit: int) -> Problem:
    """Ends the connection as well: the rest of the body is not wanted."""
    return Problem(
        413,
        "too-large",
        f"the body is larger than {limit:,} bytes",
        "send less at a time; whole datasets go to POST /v1/uploads",
        headers={"Connection": "close"},
    )


def limits_of(settings: Settings) -> Callable[[Scope], int]:
    """The contents of uploads have a limit of their own."""

    def limit_of(scope: Scope) -> int:
        is_upload = scope["method"] == "PUT" and UPLOAD.fullmatch(scope["path"])
        return settings.max_upload_bytes if is_upload else settings.max_body_bytes

    return limit_of
