"""One connection to the service: sends a request, repeats it where that may help, reads the answer.

Everything else of this package says which request; what every request has in common is here.
"""

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError

from difficulty_service.base.errors import ConfigError, ServiceError
from difficulty_service.bodies.service import ProblemSchema

Model = TypeVar("Model", bound=BaseModel)
Parameter: TypeAlias = str | int | Sequence[str] | None

KEY = "DIFFICULTY_KEY"
"""Environment variable with the key."""

DEFAULT_URL = "http://127.0.0.1:8000"

TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as broken."""

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition of a request, where the service names none."""

LONGEST_PAUSE = 120.0
"""Seconds that the service may ask to wait for; where it asks for more, that is an error."""

BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class ServiceConnection:
    """Sends requests to one service, with one key.

    Addresses are templates such as `/v1/jobs/{}/scores`, followed by the texts to insert.

    Args:
        url: Address of the service.
        key: API key; by default the one in the environment variable DIFFICULTY_KEY, if it is set.
        transport: Transport of httpx2 in place of its own.

    Raises:
        ConfigError: The address or the key is invalid; the message does not contain the key.
    """

    def __init__(
        self, url: str, key: str | None, transport: httpx2.BaseTransport | None = None
    ) -> None:
        check_address(url)
        self._http = httpx2.Client(
            base_url=url, headers=headers_with(key), timeout=TIMEOUT, transport=transport
        )

    def __repr__(self) -> str:
        return str(self._http.base_url)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def ask(
        self,
        answer: type[Model],
        method: str,
        path: str,
        *inserted: str,
        answers: Collection[int] = (),
        **options: Any,  # noqa: ANN401 - as of _request
    ) -> Model:
        """Sends a request, and reads the JSON of its answer.

        Args:
            answer: Type of the answer; fields that a newer service has added are left out.
            method: Method of HTTP.
            path: Template of the address.
            inserted: Texts to insert into it.
            answers: Statuses from 400 on that are answers and no problems.
            options: Parameters, headers, body and timeout.

        Raises:
            ServiceError: The service refuses, cannot be reached, or is another one.
        """
        response = self.send(method, path, *inserted, answers=answers, **options)
        try:
            return answer.model_validate_json(response.content, extra="ignore")
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            raise ServiceError(
                f"the answer of {address_of(response)} is not what this version expects "
                f"({'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']})",
                "check the address of the service, and that both have the same version",
                status=response.status_code,
            ) from None

    def send(
        self,
        method: str,
        path: str,
        *inserted: str,
        answers: Collection[int] = (),
        **options: Any,  # noqa: ANN401 - as of _request
    ) -> httpx2.Response:
        """Sends a request as `ask` does, and gives the response, whose body has been read."""
        return self._response(self._request(method, path, inserted, **options), answers)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *inserted: str,
        **options: Any,  # noqa: ANN401 - as of _request
    ) -> Iterator[httpx2.Response]:
        """Sends a request as `ask` does, and gives the response, whose body is read by the caller.

        Reading it may raise `httpx2.TransportError`.
        """
        request = self._request(method, path, inserted, **options)
        response = self._response(request, is_stream=True)
        try:
            yield response
        finally:
            response.close()

    def _request(
        self,
        method: str,
        path: str,
        inserted: Sequence[str],
        *,
        params: Mapping[str, Parameter] | None = None,
        body: BaseModel | Mapping[str, Any] | None = None,
        **options: Any,  # noqa: ANN401 - those of httpx2
    ) -> httpx2.Request:
        """A request with the parameters that are not None, and the fields of the body that are set.

        What is inserted into the path is quoted, so that it cannot lead elsewhere.
        """
        if body is not None:
            options["content"] = (
                body.model_dump_json(exclude_unset=True)
                if isinstance(body, BaseModel)
                else json.dumps(body)
            )
            options["headers"] = {"Content-Type": "application/json"} | options.get("headers", {})
        given = {name: value for name, value in (params or {}).items() if value is not None}
        address = path.format(*(quote(text, safe="") for text in inserted))
        return self._http.build_request(method, address, params=given or None, **options)

    def _response(
        self, request: httpx2.Request, answers: Collection[int] = (), *, is_stream: bool = False
    ) -> httpx2.Response:
        """Repeats a request while the service is busy or out of reach; gives the response."""
        for pause in (*PAUSES, None):
            try:
                response = self._http.send(request, stream=is_stream)
                if not response.is_success:
                    response.read()
            except httpx2.TransportError as error:
                if pause is None or not is_repeatable(request):
                    raise out_of_reach(error) from error
                time.sleep(pause)
                continue
            if response.is_success or response.status_code in answers:
                return response
            asked = retry_after(response)
            is_patient = pause is not None and asked is not None and asked <= LONGEST_PAUSE
            if response.status_code not in BUSY or not is_patient:
                raise error_of(response)
            time.sleep(asked or 0)
        raise AssertionError  # the last round returns or raises


class Patience:
    """Waits between attempts that achieve nothing; gives up after the last of `PAUSES`."""

    def __init__(self) -> None:
        self._left = list(PAUSES)

    def renew(self) -> None:
        """Notes that something was achieved."""
        self._left = list(PAUSES)

    def wait(self, error: ServiceError) -> None:
        """Waits before the next attempt; raises the error where there is none left."""
        if not self._left:
            raise error
        time.sleep(self._left.pop(0))


def check_address(url: str) -> None:
    """Refuses what is no address of a service.

    Raises:
        ConfigError: It is none, or has a password, which the message does not contain.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ConfigError(
            f"{url!r} is no address ({error})", f"give one as {DEFAULT_URL}", parameter="url"
        ) from None
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise ConfigError(
            f"the address of the service has to be like {DEFAULT_URL}",
            f"give a key as {KEY}, not in the address",
            parameter="url",
        )


def headers_with(key: str | None) -> dict[str, str]:
    """The headers of every request.

    Raises:
        ConfigError: The key cannot be sent; the message does not contain it.
    """
    headers = {"User-Agent": f"difficulty/{version('difficulty-service')}"}
    secret = (os.environ.get(KEY, "") if key is None else key).strip()
    if secret:
        if not secret.isascii() or not secret.isprintable() or " " in secret:
            raise ConfigError("the key has characters that no key has", f"copy it again into {KEY}")
        headers["Authorization"] = f"Bearer {secret}"
    return headers


def is_repeatable(request: httpx2.Request) -> bool:
    """Whether to send it twice does what to send it once does; a part of an upload is added."""
    return request.method not in ("POST", "PUT") or "Idempotency-Key" in request.headers


def retry_after(response: httpx2.Response) -> float | None:
    """Seconds until a request may be sent again, as the service says; None where it does not."""
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def address_of(response: httpx2.Response) -> httpx2.URL:
    """The address that answered, without the parameters."""
    return response.request.url.copy_with(query=None)


def error_of(response: httpx2.Response) -> ServiceError:
    """The error that a response is about."""
    status = response.status_code
    try:
        return from_problem(ProblemSchema.model_validate_json(response.content))
    except ValidationError:
        pass
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown status"
    if response.is_redirect:
        place = response.headers.get("Location", "")[:200]
        return ServiceError(
            f"{address_of(response)} leads to {place}",
            "use that address",
            status=status,
            title=title,
        )
    return ServiceError(
        f"{address_of(response)} answered {status} {title}",
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


def out_of_reach(error: httpx2.TransportError) -> ServiceError:
    """The error of a request that has no answer, or only the beginning of one."""
    reason = " ".join(str(error).split()) or type(error).__name__
    path, _, _ = error.request.url.raw_path.decode().partition("?")
    return ServiceError(
        f"{error.request.method} {path} has no answer ({reason})",
        "check the address of the service, and that it runs",
        title="The service cannot be reached",
    )
