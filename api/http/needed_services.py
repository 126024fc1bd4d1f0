"""What this folder takes from the services of the application, which are defined in layers above.

Middleware sees a scope and no route, and may answer before the application has started.
"""

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from fastapi import FastAPI, Request
from sqlalchemy import Engine
from starlette.responses import Response

from api.http.problems import Problem
from api.settings import Settings
from api.storage.key_uses import KeyUses

ProblemPage = Callable[[Problem, Request], Response]
"""Makes the page that shows a problem to a browser."""


class NeededServices(Protocol):
    """The services that authentication and the answers to errors need."""

    @property
    def settings(self) -> Settings:
        """What the operator has chosen."""

    @property
    def engine(self) -> Engine:
        """The database, for the keys in it."""

    @property
    def key_uses(self) -> KeyUses:
        """Notes which keys are used."""

    @property
    def problem_page(self) -> ProblemPage:
        """Writes a problem for a browser that asks for a page."""


def attach_services(app: FastAPI, services: NeededServices) -> None:
    """Makes services known to the requests of an application; replaces earlier ones."""
    app.state.services = services


def find_services(scope: MutableMapping[str, Any]) -> NeededServices | None:
    """The services behind a request; None while the application has not started."""
    return getattr(getattr(scope.get("app"), "state", None), "services", None)


def needed_services(scope: MutableMapping[str, Any]) -> NeededServices:
    """The services behind a request to an application that has started."""
    services = find_services(scope)
    if services is None:
        raise RuntimeError("the application has not started, so it has no services")
    return services
