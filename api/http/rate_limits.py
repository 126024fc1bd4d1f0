"""The number of requests that a key, or an address without a key, may send in a time window."""

import math
import time
from collections.abc import Callable

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from api.http.problems import Problem
from difficulty_service.errors import ConfigError


def rate_limiter(rate: str) -> Callable[[str], None]:
    """Makes a counter of requests, which lives in the memory of this process.

    Args:
        rate: One or several limits in the notation of the package `limits`: `600/minute`,
            `10/second;10000/day`.

    Returns:
        A function that counts one request of the named client and raises a `Problem` with status
        429 where the client has reached a limit.

    Raises:
        ConfigError: The rate is not in that notation.
    """
    limits = _parse(rate)
    limiter = FixedWindowRateLimiter(MemoryStorage())

    def count(client: str) -> None:
        for limit in limits:
            if not limiter.hit(limit, client):
                reset_at = limiter.get_window_stats(limit, client).reset_time
                raise _too_many_requests(limit, max(1, math.ceil(reset_at - time.time())))

    return count


def _too_many_requests(limit: RateLimitItem, seconds: int) -> Problem:
    return Problem(
        429,
        "too-many-requests",
        f"more than {limit} requests",
        f"wait {seconds} s, as the Retry-After header says",
        headers={"Retry-After": str(seconds)},
    )


def _parse(rate: str) -> list[RateLimitItem]:
    """The limits of a rate, the shortest time window first."""
    try:
        return sorted(parse_many(rate))
    except ValueError:
        raise ConfigError(
            f"the rate limit {rate!r} cannot be read",
            "write a number of requests and a time window, such as 600/minute",
            parameter="rate_limit",
        ) from None
