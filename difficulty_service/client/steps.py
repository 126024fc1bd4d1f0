"""What an operation asks of a connection, and how a request is repeated.

An operation is a generator: it yields steps, is sent what comes of each, and returns a result. It
does no input or output over the network itself, so that the same operation runs with and without
`await`. A step that fails raises `httpx2.TransportError` inside it.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeAlias, TypeVar

import httpx2
from pydantic import ValidationError

from difficulty_service.base.errors import ServiceError
from difficulty_service.bodies.service import ProblemSchema
from difficulty_service.client.requests import Request

T = TypeVar("T")

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition of a request, where the service names none."""

LONGEST_PAUSE = 120.0
"""Seconds that the service may ask to wait for; where it asks for more, that is an error."""

BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


@dataclass(frozen=True)
class Send:
    """Sends a request, and is answered with the response; its body is read, unless it is a stream.

    Ends the stream of the request before.
    """

    request: Request[Any]
    is_stream: bool = False


@dataclass(frozen=True)
class Read:
    """Is answered with the next bytes or event of the stream; None at its end."""


@dataclass(frozen=True)
class Pause:
    """Waits."""

    seconds: float


@dataclass(frozen=True)
class Do(Generic[T]):
    """Calls a function that may take a while, and is answered with its result."""

    function: Callable[[], T]


@dataclass(frozen=True)
class Give(Generic[T]):
    """Gives a value to the caller, who comes back for the next; one who awaits the end does not."""

    value: T


Step: TypeAlias = Send | Read | Pause | Do[Any]
Operation: TypeAlias = Generator[Step | Give[Any], Any, T]
Series: TypeAlias = Generator[Step | Give[T], Any, None]
"""An operation that gives values as they come."""


def perform(request: Request[T]) -> Operation[T]:
    """The result of a request.

    Raises:
        ServiceError: The service refuses it, cannot be reached, or is another one.
    """
    response = yield from send(request)
    try:
        return request.read(response)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise ServiceError(
            f"the answer of {response.request.url.copy_with(query=None)} is not what this version "
            f"expects ({'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']})",
            "check the address of the service, and that both have the same version",
            status=response.status_code,
        ) from None


def do(function: Callable[[], T]) -> Operation[T]:
    """The result of a function that may take a while, such as one that reads a file."""
    result: T = yield Do(function)
    return result


def send(request: Request[Any], *, is_stream: bool = False) -> Operation[httpx2.Response]:
    """The response to a request, which is repeated while the service is busy or out of reach."""
    for pause in (*PAUSES, None):
        try:
            response: httpx2.Response = yield Send(request, is_stream)
        except httpx2.TransportError as error:
            if pause is None or not request.is_repeatable:
                raise out_of_reach(request, error) from error
        else:
            if response.status_code < HTTPStatus.MULTIPLE_CHOICES or (
                response.status_code in request.answers
            ):
                return response
            asked = retry_after(response)
            is_patient = pause is not None and asked is not None and asked <= LONGEST_PAUSE
            if response.status_code not in BUSY or not is_patient:
                raise error_of(response)
            pause = asked
        yield Pause(pause or 0)
    raise AssertionError  # the last round returns or raises


def retry_after(response: httpx2.Response) -> float | None:
    """Seconds until a request may be sent again, as the service says; None where it does not."""
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def error_of(response: httpx2.Response) -> ServiceError:
    """The error that a response is about."""
    status = response.status_code
    try:
        return from_problem(ProblemSchema.model_validate_json(response.content))
    except ValidationError:
        pass
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown status"
    address = response.request.url.copy_with(query=None)
    if response.is_redirect:
        place = response.headers.get("Location", "")[:200]
        return ServiceError(
            f"{address} leads to {place}", "use that address", status=status, title=title
        )
    return ServiceError(
        f"{address} answered {status} {title}",
        "check the address of the service",
        status=status,
        title=title,
    )


def from_problem(problem: ProblemSchema) -> ServiceError:
    """The error of a problem that the service describes."""
    return ServiceError(
        problem.detail,
        problem.remedy,
        status=problem.status,
        title=problem.title,
        kind=problem.type.rpartition("/")[2],
        field=problem.field,
    )


def out_of_reach(request: Request[Any], error: httpx2.TransportError) -> ServiceError:
    """The error of a request that has no answer."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return ServiceError(
        f"{request.method} {request.path} has no answer ({reason})",
        "check the address of the service, and that it runs",
        title="The service cannot be reached",
    )
