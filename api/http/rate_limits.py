"""The number of requests that a key, or an address without a key, may send in a time window."""

import math
import time
from collections.abc import Callable

from limits import RateLimitItem, parse_many
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter

from api.http.problems import Problem
from difficulty_service.errors import ConfigError

FEWEST_TO_FORGET = 1000
"""Number of counts that are kept without looking for expired ones."""


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
    limiter = FixedWindowRateLimiter(Counts())

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


class Counts(Storage):
    """Counts of requests in the memory of one event loop.

    The package's own `MemoryStorage` starts a thread every 10 ms to look through all counts, which
    cost a tenth of the server's core time, and takes half a core with 100,000 addresses. Here
    expired counts are forgotten when their number may have doubled.

    Args:
        now: Gives the time, in seconds since 1970.
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
