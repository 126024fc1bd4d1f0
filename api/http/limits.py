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
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter
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
    limiter = FixedWindowRateLimiter(Counts())

    def count(client: str) -> None:
        for limit in limits:
            if not limiter.hit(limit, client):
                reset_at = limiter.get_window_stats(limit, client).reset_time
                seconds = max(1, math.ceil(reset_at - time.time()))
                raise too_many(
                    f"more than {limit} requests",
                    f"wait {seconds} s, as the Retry-After header says",
                    headers={"Retry-After": str(seconds)},
                )

    return count


class Counts(Storage):
    """Counts of requests in the memory of one event loop.

    The package's own `MemoryStorage` starts a thread every 10 ms to look through all counts, which
    cost a tenth of the server's core time, and takes half a core with 100,000 addresses. Here
    expired counts are forgotten when their number may have doubled.
    """

    STORAGE_SCHEME = None  # no address names it

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._now = now
        self._counts: dict[str, int] = {}
        self._expiries: dict[str, float] = {}
        self._look_at = FEWEST_TO_FORGET

    @property
    def base_exceptions(self) -> type[Exception]:
        """Errors of a storage elsewhere, of which there are none."""
        return ValueError

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Adds to a count, which begins with its first request and lasts for some seconds."""
        now = self._now()
        if self._expiries.get(key, 0) <= now:
            self._forget_expired(now)
            self._counts[key] = 0
            self._expiries[key] = now + expiry
        self._counts[key] += amount
        return self._counts[key]

    def get(self, key: str) -> int:
        """A count; 0 where there is none that lasts."""
        return self._counts[key] if self._expiries.get(key, 0) > self._now() else 0

    def get_expiry(self, key: str) -> float:
        """When a count expires, in seconds since 1970."""
        return self._expiries.get(key, self._now())

    def check(self) -> bool:
        """Whether counts can be kept."""
        return True

    def reset(self) -> int:
        """Forgets all counts; gives their number."""
        number = len(self._counts)
        self._counts.clear()
        self._expiries.clear()
        return number

    def clear(self, key: str) -> None:
        """Forgets a count."""
        self._counts.pop(key, None)
        self._expiries.pop(key, None)

    def _forget_expired(self, now: float) -> None:
        if len(self._counts) < self._look_at:
            return
        for key in [key for key, expiry in self._expiries.items() if expiry <= now]:
            self.clear(key)
        self._look_at = max(FEWEST_TO_FORGET, 2 * len(self._counts))


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
