"""How often a key, or an address without a key, may ask."""

import math
import time
from collections.abc import Callable

from limits import parse_many
from slowapi import Limiter
from slowapi.errors import RateLimitExceeded
from starlette.requests import Request
from starlette.types import Scope

from api.http.problems import Problem
from difficulty_service.errors import ConfigError


def rate_limiter(rate: str) -> Callable[[Scope, str], None]:
    """Makes what counts requests.

    Args:
        rate: As slowapi writes limits: `600/minute`, `10/second;10000/day`.

    Returns:
        Given the scope of a request and who asks, raises a `Problem` with status 429 where that
        is too often.

    Raises:
        ConfigError: The rate is not written so.
    """
    limiter = Limiter(key_func=lambda request: request.state.client)

    @limiter.shared_limit(_checked(rate), scope="requests")
    def count(request: Request) -> None:
        """Counted by being called."""

    def check(scope: Scope, client: str) -> None:
        request = Request(scope)
        request.state.client = client
        try:
            count(request)
        except RateLimitExceeded as error:
            item, identifiers = request.state.view_rate_limit
            reset = limiter.limiter.get_window_stats(item, *identifiers).reset_time
            raise _too_often(error, max(1, math.ceil(reset - time.time()))) from None

    return check


def _too_often(error: RateLimitExceeded, wait: int) -> Problem:
    return Problem(
        429,
        "too-many-requests",
        f"more than {error.detail} requests",
        f"wait {wait} s, as the Retry-After header says",
        headers={"Retry-After": str(wait)},
    )


def _checked(rate: str) -> str:
    # slowapi would only log it, and then count nothing.
    try:
        parse_many(rate)
    except ValueError:
        raise ConfigError(
            f"rate limit {rate!r} cannot be read; write for example 600/minute"
        ) from None
    return rate
