"""Checks the key of a request again while the request goes on."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from api.http.problems import Problem
from api.storage.keys import is_in_force

CHECK_SECONDS = 2.0


@dataclass
class KeyWatch:
    """Checks every few seconds whether a caller who was let in would be still.

    Attributes:
        engine: The database.
        owner: Id of the key; "" where there were no keys.
        every: Seconds between two checks.
        checked: When the last one was made, by the monotonic clock.
    """

    engine: Engine
    owner: str
    every: float = CHECK_SECONDS
    checked: float = field(default_factory=time.monotonic)

    async def check(self) -> None:
        """Looks the key up if that was long enough ago.

        Raises:
            Problem: The key no longer allows anything.
        """
        if time.monotonic() - self.checked < self.every:
            return
        if not await run_in_threadpool(is_in_force, self.engine, self.owner):
            raise _no_longer_valid(self.owner)
        self.checked = time.monotonic()

    async def watched(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks of a body, as long as the key is valid.

        Raises:
            Problem: It is so no longer.
        """
        async for chunk in body:
            yield chunk
            await self.check()


def _no_longer_valid(owner: str) -> Problem:
    return Problem(
        401,
        "unauthorised",
        "the key was revoked during the request"
        if owner
        else "keys are in use since the request began",
        "go on with a valid key",
        headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
    )
