"""The number of requests of a client in a time window, and the size of a request's body.

Starlette counts the bytes as they arrive and raises an error at the chunk that exceeds the limit,
which becomes a problem as every other error (`problem_responses`). A length that is declared and
too large is refused here beforehand: Starlette would answer it in plain text. Code between here and
the handlers must let the error pass, as FastAPI's parsers of JSON and forms do.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from limits import parse_many
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.problem_responses import answer, body_too_large
from api.http.problems import too_many
from api.settings import Settings
from difficulty_service.base.errors import ConfigError

FEWEST_TO_FORGET = 1000  # number of counts that are kept without looking for expired ones


def rate_limiter(rate: str) -> Callable[[str], None]:
    """Makes a counter of requests, which lives in the memory of this process.

    The rate is one or several limits in the notation of the package `limits`: `600/minute`,
    `10/second;10000/day`. The counter raises a `Problem` where the named client has reached one.
    """
    try:
        limits = sorted(parse_many(rate))  # the shortest time window first
    except ValueError:
        raise ConfigError(
            f"the rate limit {rate!r} cannot be read",
            "write a number of requests and a time window, such as 600/minute",
            parameter="rate_limit",
        ) from None
    counts = Counts()

    def count(client: str) -> None:
        for limit in limits:
            number, end = counts.add(limit.key_for(client), limit.get_expiry())
            if number > limit.amount:
                seconds = max(1, math.ceil(end - time.time()))
                raise too_many(
                    f"more than {limit} requests",
                    f"wait {seconds} s, as the Retry-After header says",
                    headers={"Retry-After": str(seconds)},
                )

    return count


class Counts:
    """Counts of requests in windows of time, in the memory of one event loop.

    The storage of the package `limits` starts a thread every 10 ms to look through all counts,
    which cost a tenth of the server's core time, and takes half a core with 100,000 addresses. Here
    expired counts are forgotten when their number may have doubled.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._windows: dict[str, tuple[int, float]] = {}  # count, and when it expires
        self._look_at = FEWEST_TO_FORGET

    def __len__(self) -> int:
        """Number of counts in memory, expired ones included."""
        return len(self._windows)

    def add(self, key: str, expiry: float) -> tuple[int, float]:
        """Adds a request to a count, which begins with its first one and lasts for some seconds.

        Gives the count, and when it expires in seconds since 1970.
        """
        now = self._now()
        count, end = self._windows.get(key, (0, 0.0))
        if end <= now:
            if len(self._windows) >= self._look_at:
                lasting = {key: each for key, each in self._windows.items() if each[1] > now}
                self._windows = lasting
                self._look_at = max(FEWEST_TO_FORGET, 2 * len(lasting))
            count, end = 0, now + expiry
        self._windows[key] = (count + 1, end)
        return count + 1, end


UPLOAD = re.compile(r"/v1/uploads/[^/]+/?")
TABLE = re.compile(r"/v1/jobs/[^/]+/columns/[^/]+/?")
TABLE_FORM = re.compile(r"/jobs/[^/]+/columns/?")
FORM_BYTES = 64 << 10  # of a form besides its file


@dataclass(frozen=True)
class BodyLimits:
    """Middleware that answers 413 to a body that is too large, before or while it is read."""

    app: ASGIApp
    limit_of: Callable[[Scope], int]  # maximum number of bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, with its body up to the limit."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope)
        lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
        if any(re.fullmatch(rb"\d{1,18}", each) and int(each) > limit for each in lengths):
            await answer(body_too_large(limit), scope)(scope, receive, send)
            return
        await RequestBodyLimitMiddleware(self.app, limit)(scope, receive, send)


def limits_of(settings: Settings) -> Callable[[Scope], int]:
    """The limit of each request: the contents of uploads and tables have limits of their own."""

    def limit_of(scope: Scope) -> int:
        method, path = scope["method"], scope["path"]
        if method == "PUT" and UPLOAD.fullmatch(path):
            return settings.max_upload_bytes
        if method == "PUT" and TABLE.fullmatch(path):
            return settings.max_table_bytes
        if method == "POST" and TABLE_FORM.fullmatch(path):
            return settings.max_table_bytes + FORM_BYTES
        return settings.max_body_bytes

    return limit_of
