"""A maximum size of request bodies, whatever their headers say of it.

Starlette counts the bytes as they arrive and raises an error at the chunk that exceeds the limit,
which becomes a problem as every other error (`problem_responses`). A length that is declared and
too large is refused here beforehand: Starlette would answer it in plain text. Code between here and
the handlers must let the error pass: code that catches it decides on the answer. FastAPI's parsers
of JSON and forms do let it pass.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.problem_responses import answer, body_too_large
from api.settings import Settings

UPLOAD = re.compile(r"/v1/uploads/[^/]+/?")


@dataclass(frozen=True)
class BodyLimits:
    """Middleware that answers 413 to a body that is too large, before or while it is read.

    Attributes:
        app: Application behind it.
        limit_of: Gives the maximum number of bytes for the scope of a request.
    """

    app: ASGIApp
    limit_of: Callable[[Scope], int]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, with its body up to the limit."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope)
        if _declared_bytes(scope) > limit:
            await answer(body_too_large(limit), scope)(scope, receive, send)
            return
        await RequestBodyLimitMiddleware(self.app, limit)(scope, receive, send)


def _declared_bytes(scope: Scope) -> int:
    """Value of Content-Length; 0 where there is none, or it is not a number."""
    values = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    return max((int(value) for value in values if re.fullmatch(rb"\d{1,18}", value)), default=0)


def limits_of(settings: Settings) -> Callable[[Scope], int]:
    """The limit of each request: the contents of uploads have one of their own."""

    def limit_of(scope: Scope) -> int:
        is_upload = scope["method"] == "PUT" and UPLOAD.fullmatch(scope["path"])
        return settings.max_upload_bytes if is_upload else settings.max_body_bytes

    return limit_of
