"""Authentication and authorisation by API key, and the rules while there are no keys."""

import ipaddress
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.browsers import refuse_other_sites, secret_in_cookie
from api.http.needed_services import needed_services
from api.http.principals import ANONYMOUS, Principal
from api.http.problem_responses import answer, problem_of
from api.http.problems import Problem, forbidden
from api.storage.keys import KeyEnded, any_keys, digest_of, find_by_digest

HEALTH = "/healthz"
OPEN_PATHS = (HEALTH, "/readyz")
SIGN_IN = "/sign-in"
OPEN_FILES = "/static/"  # styles and scripts of the pages, which the sign-in needs, too
UNCOUNTED = re.compile(
    r"/v1/jobs/[^/]+/(thumbnails/.+|missing/\d+\.webp)|/jobs/[^/]+/images/\d+/picture"
)
"""Pictures, of which one page has dozens."""

NO_KEY = "there is no key"
UNKNOWN_KEY = "the key is unknown, revoked or replaced"
LONGEST_SECRET = 200
THREADS = 2  # threads that look up keys; more only keep each other and the event loop from running
BEARER = HTTPBearer(
    auto_error=False, scheme_name="bearer", description="A key of `difficulty keys`"
)
HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="header")


@dataclass(frozen=True)
class Authentication:
    """Middleware that refuses requests without a valid key, and those above the rate limit.

    The application behind it finds the `Principal` in `request.state.principal`.
    """

    app: ASGIApp
    count: Callable[[str], None]  # a request of a client; raises a `Problem` above the rate limit
    any_host: bool = False  # whether callers without a key may use any host name
    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS))
    has_keys: Event = field(default_factory=Event)  # since a caller has shown one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers 401, 403 or 429."""
        path = scope.get("path", "")
        if scope["type"] != "http" or path in OPEN_PATHS or path.startswith(OPEN_FILES):
            await self.app(scope, receive, send)
            return
        try:
            refuse_other_sites(scope["method"], Headers(scope=scope))
            if path == SIGN_IN:
                self.count(f"address {_address(scope)}")
            else:
                await self._authenticate(scope)
        except Exception as error:  # noqa: BLE001 - no handler of the application sees them here
            await answer(problem_of(error), scope)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> None:
        services = needed_services(scope)
        state = scope.setdefault("state", {})
        headers = Headers(scope=scope)
        try:
            secret = presented_secret(headers, secure=scope["scheme"] == "https")
            if self.has_keys.is_set() and secret is None:
                raise _unauthorised(NO_KEY)  # without a look-up, which costs more than the rest
            look_up = partial(identify, services.engine, secret, None if self.any_host else headers)
            state["principal"] = await to_thread.run_sync(look_up, limiter=self.threads)
            if owner := state["principal"].owner:
                self.has_keys.set()
                services.key_uses.add(owner)
        except Problem:
            # A guessed key counts too, on the address; otherwise guessing would have no limit.
            self.count(f"address {_address(scope)}")
            raise
        if scope["method"] == "GET" and UNCOUNTED.fullmatch(scope["path"]):
            return
        self.count(client_of(state["principal"].owner, scope))


def client_of(owner: str, scope: MutableMapping[str, Any]) -> str:
    """The client that has a share of the service: a key, or an address where there are no keys."""
    return f"key {owner}" if owner else f"address {_address(scope)}"


def identify(engine: Engine, secret: str | None, headers: Headers | None) -> Principal:
    """The caller of a request; one without a key is held to the host names of this machine.

    Without `headers` it is not, because the allowed names are checked elsewhere.
    """
    if secret and (principal := find_principal(engine, secret)) is not None:
        return principal
    if any_keys(engine):
        raise _unauthorised(UNKNOWN_KEY if secret else NO_KEY)
    if headers is not None:
        _check_host(headers.get("host", ""))
    return ANONYMOUS


def find_principal(engine: Engine, secret: str) -> Principal | None:
    """The caller that shows a secret; None if it is unknown.

    Raises:
        Problem: The secret or its key has expired.
    """
    digest = digest_of(secret)
    try:
        key = find_by_digest(engine, digest)
    except KeyEnded as error:
        raise _unauthorised(error.problem) from None
    return None if key is None else Principal.of(key, digest)


def presented_secret(headers: Headers, *, secure: bool) -> str | None:
    """The key in the headers or in the cookie of a sign-in, if there is one."""
    authorization = headers.get("authorization")
    if authorization is None:
        secret = headers.get("x-api-key") or secret_in_cookie(headers, secure=secure)
    else:
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorised(f"the authentication scheme {scheme[:20]!r} is not supported")
    secret = (secret or "").strip()
    if len(secret) > LONGEST_SECRET:
        raise _unauthorised("the key is longer than any valid one")
    return secret or None


def _check_host(host: str) -> None:
    """Refuses host names that a foreign web page could resolve to this machine (DNS rebinding).

    Without keys only this machine is answered, but a browser on it visits other sites. One of
    them may have its name resolve to the loopback address, which makes the browser treat both as
    the same site.
    """
    name = re.sub(r":\d*$", "", host).strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return
    with suppress(ValueError):
        if ipaddress.ip_address(name).is_loopback:
            return
    raise forbidden(
        f"without keys the service answers to names of this machine only, not to {name[:100]!r}",
        "use the name localhost, name this one in DIFFICULTY_ALLOWED_HOSTS, or make a key with "
        "`difficulty keys create`",
    )


def _unauthorised(detail: str) -> Problem:
    return Problem(
        401,
        "unauthorised",
        detail,
        "send a key of `difficulty keys create` as `Authorization: Bearer KEY` or `X-API-Key: KEY`",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"


def require_scope(scope: str) -> Callable[..., Awaitable[Principal]]:
    """A dependency that gives the caller, who must have a scope.

    `Authentication` has read the two headers; here they are declared for /openapi.json only.
    """

    async def check(
        request: Request,
        _bearer: Annotated[object, Depends(BEARER)],
        _header: Annotated[object, Depends(HEADER)],
    ) -> Principal:
        principal: Principal | None = getattr(request.state, "principal", None)
        if principal is None:
            raise _unauthorised(NO_KEY)
        principal.require(scope)
        return principal

    return check


read_key = require_scope("read")
write_key = require_scope("write")

ReadKey = Annotated[Principal, Depends(read_key)]
WriteKey = Annotated[Principal, Depends(write_key)]

CHECK_SECONDS = 2.0


@dataclass
class KeyWatch:
    """Checks every few seconds whether a caller who was let in would be still."""

    engine: Engine
    principal: Principal  # with the terms that the key had at the last check
    root: str | None = None  # that the request is about
    every: float = CHECK_SECONDS
    checked: float = field(default_factory=time.monotonic)  # by the monotonic clock

    async def check(self) -> None:
        """Looks the key up if that was long enough ago, and refuses one that is no longer valid."""
        if time.monotonic() - self.checked < self.every:
            return
        await run_in_threadpool(self._require)
        self.checked = time.monotonic()

    def _require(self) -> None:
        if not self.principal.owner:
            if any_keys(self.engine):
                raise _ended("keys are in use since the request began")
            return
        try:
            key = find_by_digest(self.engine, self.principal.digest)
        except KeyEnded as error:
            raise _ended(error.problem) from None
        if key is None:
            raise _ended("the key was revoked or replaced during the request")
        self.principal = Principal.of(key, self.principal.digest)
        if not self.principal.may_use(self.root):
            raise _ended(f"the key may no longer use the root {self.root!r}")

    async def watched(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks of a body, as long as the key is valid."""
        async for chunk in body:
            yield chunk
            await self.check()


def _ended(detail: str) -> Problem:
    headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
    return Problem(401, "unauthorised", detail, "go on with a valid key", headers=headers)
