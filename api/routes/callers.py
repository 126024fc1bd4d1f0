"""Who sends a request: its key, and the turns that it waits for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Request

from api.http.api_keys import ReadKey, WriteKey, client_of
from api.http.fair_queue import FairQueue
from api.http.principals import Principal
from api.services import Services, services_of

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Caller:
    """A request and the key that it shows."""

    request: Request
    key: Principal

    @property
    def services(self) -> Services:
        """What the requests of the service share."""
        return services_of(self.request)

    @property
    def client(self) -> str:
        """The client that has a share of the service."""
        return client_of(self.key.owner, self.request.scope)

    async def in_turn(
        self, queue: FairQueue, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Result of a function, when it is the caller's turn; who waits for too many is refused."""
        with queue.request(self.client):
            return await queue.run(self.client, function, *args, **kwargs)


async def reader(request: Request, key: ReadKey) -> Caller:
    """The caller, who may read."""
    return Caller(request, key)


async def writer(request: Request, key: WriteKey) -> Caller:
    """The caller, who may write."""
    return Caller(request, key)


Reader = Annotated[Caller, Depends(reader)]
Writer = Annotated[Caller, Depends(writer)]
