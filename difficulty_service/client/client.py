"""The clients: one waits, the other is awaited. Both carry out the same requests and operations."""

import asyncio
import functools
import inspect
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import aclosing, closing
from importlib.metadata import version
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_args, get_origin

import httpx2

from difficulty_service.base.errors import ConfigError
from difficulty_service.client import operations, requests
from difficulty_service.client.requests import Request
from difficulty_service.client.steps import (
    Do,
    Give,
    Operation,
    Pause,
    Read,
    Send,
    Series,
    Step,
    perform,
)

P = ParamSpec("P")
T = TypeVar("T")
Http = TypeVar("Http", httpx2.Client, httpx2.AsyncClient)

KEY = "DIFFICULTY_KEY"
"""Environment variable with the key."""

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as broken."""


def connection_options(url: str, key: str | None) -> dict[str, Any]:
    """Arguments for either client of httpx2.

    Raises:
        ConfigError: The address or the key is invalid; the message does not have the key.
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
    headers = {"User-Agent": f"difficulty/{version('difficulty-service')}"}
    secret = (os.environ.get(KEY, "") if key is None else key).strip()
    if secret:
        if not secret.isascii() or not secret.isprintable() or " " in secret:
            raise ConfigError("the key has characters that no key has", f"copy it again into {KEY}")
        headers["Authorization"] = f"Bearer {secret}"
    return {"base_url": url, "headers": headers, "timeout": TIMEOUT}


def prepare(http: Http, request: Request[Any]) -> httpx2.Request:
    """A request as it is sent."""
    timeout = http.timeout
    if request.seconds is not None:
        timeout = httpx2.Timeout(TIMEOUT, read=request.seconds)
    return http.build_request(
        request.method,
        request.address,
        params=dict(request.query) or None,
        headers=dict(request.headers),
        content=request.content or None,
        files=list(request.files) or None,
        data=dict(request.fields) or None,
        timeout=timeout,
    )


def is_read_at_once(response: httpx2.Response, step: Send) -> bool:
    """Whether the body of a response is read whole, as are those of problems."""
    return not step.is_stream or not response.is_success


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether the body of a response is read by events."""
    return response.headers.get("Content-Type", "").startswith("text/event-stream")


class _Exchange:
    """Carries out the steps of one operation; has one response open at a time."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self._response: httpx2.Response | None = None
        self._parts: Iterator[object] = iter(())

    def carry_out(self, step: Step) -> object:
        match step:
            case Send():
                return self._send(step)
            case Read():
                return next(self._parts, None)
            case Pause():
                time.sleep(step.seconds)
                return None
            case Do():
                return step.function()

    def _send(self, step: Send) -> httpx2.Response:
        self.close()
        response = self._response = self._http.send(prepare(self._http, step.request), stream=True)
        if is_read_at_once(response, step):
            response.read()
        elif is_event_stream(response):
            self._parts = iter(httpx2.EventSource(response))
        else:
            self._parts = response.iter_bytes()  # chunks of a size would be lost with a connection
        return response

    def close(self) -> None:
        if self._response is not None:
            self._response.close()


class _AsyncExchange:
    """As `_Exchange`, with `await`."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._response: httpx2.Response | None = None
        self._parts: AsyncIterator[object]

    async def carry_out(self, step: Step) -> object:
        match step:
            case Send():
                return await self._send(step)
            case Read():
                return await anext(self._parts, None)
            case Pause():
                await asyncio.sleep(step.seconds)
                return None
            case Do():
                return await asyncio.to_thread(step.function)

    async def _send(self, step: Send) -> httpx2.Response:
        await self.aclose()
        request = prepare(self._http, step.request)
        response = self._response = await self._http.send(request, stream=True)
        if is_read_at_once(response, step):
            await response.aread()
        elif is_event_stream(response):
            self._parts = aiter(httpx2.EventSource(response))
        else:
            self._parts = response.aiter_bytes()
        return response

    async def aclose(self) -> None:
        if self._response is not None:
            await self._response.aclose()


class _Course(Generic[T]):
    """The state of an operation, whoever carries out its steps."""

    def __init__(self, operation: Generator[Step | Give[Any], Any, T]) -> None:
        self.operation = operation
        self.is_over = False
        self.result: T
        self._answer: object = None
        self._error: Exception | None = None

    def advance(self) -> Step | Give[Any] | None:
        """The next step; None at the end, where the result is known."""
        answer, error = self._answer, self._error
        self._answer = self._error = None
        try:
            return self.operation.send(answer) if error is None else self.operation.throw(error)
        except StopIteration as end:
            self.result = end.value
            return None

    def answer(self, answer: object) -> None:
        self._answer = answer

    def fail(self, error: Exception) -> None:
        self._error = error


def _operation(made: Request[T] | Operation[T]) -> Operation[T]:
    return perform(made) if isinstance(made, Request) else made


def _result(make: Callable[..., Any]) -> Any:  # noqa: ANN401 - a type
    """The type of the result of what a function makes, a request or an operation."""
    annotation = inspect.signature(make).return_annotation
    if isinstance(annotation, str):
        return annotation.removeprefix("Operation[").removesuffix("]")
    return get_args(annotation)[-1]


def _values(make: Callable[..., Any], kind: Any) -> Any:  # noqa: ANN401 - types
    """The type of an iterator of the values of the series that a function makes."""
    steps = get_args(get_args(inspect.signature(make).return_annotation)[0])
    return kind[next(get_args(step)[0] for step in steps if get_origin(step) is Give)]


def _described(method: Callable[..., Any], make: Callable[..., Any], returned: object) -> None:
    """Gives a method the documentation and the parameters of what makes its operation."""
    functools.update_wrapper(method, make)
    del method.__wrapped__  # type: ignore[attr-defined]
    of_method = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.signature(make)
    method.__annotations__ = {**make.__annotations__, "return": returned}
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[of_method, *signature.parameters.values()], return_annotation=returned
    )


def _call(
    make: Callable[P, Request[T] | Operation[T]],
) -> Callable[Concatenate["Client", P], T]:
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._carry_out(make(*args, **kwargs))

    _described(method, make, _result(make))
    return method


def _each(make: Callable[P, Series[T]]) -> Callable[Concatenate["Client", P], Iterator[T]]:
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._values_of(make(*args, **kwargs))

    _described(method, make, _values(make, Iterator))
    return method


def _await(
    make: Callable[P, Request[T] | Operation[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._carry_out(make(*args, **kwargs))

    _described(method, make, _result(make))
    return method


def _async_each(
    make: Callable[P, Series[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncGenerator[T]]:
    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        return self._values_of(make(*args, **kwargs))

    _described(method, make, _values(make, AsyncIterator))
    return method


class Client:
    """A client of the REST service, which waits for each answer; for use in a `with` block.

    A service that is busy (429, 503) or out of reach is asked again some times, as it says in
    `Retry-After`. Every method raises `ServiceError` where the service refuses.

    Args:
        url: Address of the service.
        key: API key; by default the one in the environment variable DIFFICULTY_KEY, if it is set.
        transport: Transport of httpx2 in place of its own, such as one with certificates.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._http = httpx2.Client(**connection_options(url, key), transport=transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._http.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _carry_out(self, made: Request[T] | Operation[T]) -> T:
        """The result of a request or an operation."""
        course = _Course(_operation(made))
        for _ in self._steps(course):
            pass
        return course.result

    def _values_of(self, series: Series[T]) -> Iterator[T]:
        """The values of a series, as they come."""
        return self._steps(_Course(series))

    def _steps(self, course: "_Course[Any]") -> Iterator[Any]:
        with closing(course.operation), closing(_Exchange(self._http)) as exchange:
            while (step := course.advance()) is not None:
                if isinstance(step, Give):
                    yield step.value
                    continue
                try:
                    course.answer(exchange.carry_out(step))
                except httpx2.TransportError as error:
                    course.fail(error)

    submit = _call(requests.submit)
    estimate = _call(requests.estimate)
    jobs = _each(operations.jobs)
    job_page = _call(requests.job_page)
    job = _call(requests.job)
    events = _each(operations.events)
    wait = _call(operations.wait)
    cancel = _call(requests.cancel)
    delete = _call(operations.delete)
    scores = _call(operations.scores)
    download = _call(operations.download)
    samples = _each(operations.samples)
    doubtful = _each(operations.doubtful)
    score_page = _call(requests.score_page)
    errors = _each(operations.errors)
    tags = _call(requests.tags)
    missing_boxes = _call(requests.missing_boxes)
    region_picture = _call(requests.region_picture)
    thumbnail = _call(requests.thumbnail)
    columns = _call(requests.columns)
    attach = _call(requests.attach)
    detach = _call(requests.detach)
    compare = _call(operations.compare)
    comparison = _call(requests.comparison)
    comparisons = _call(requests.comparisons)
    comparison_classes = _call(requests.comparison_classes)
    comparison_table = _call(requests.comparison_table)
    comparison_marks = _call(requests.comparison_marks)
    delete_comparison = _call(requests.delete_comparison)
    marks = _each(operations.marks)
    mark = _call(requests.mark)
    score_images = _call(requests.score_images)
    score_texts = _call(requests.score_texts)
    score_features = _call(requests.score_features)
    upload = _call(operations.upload)
    uploads = _call(requests.uploads)
    upload_status = _call(requests.upload_status)
    delete_upload = _call(requests.delete_upload)
    folders = _call(requests.folders)
    backbones = _call(requests.backbones)
    usage = _call(requests.usage)
    readiness = _call(requests.readiness)


class AsyncClient:
    """A client of the REST service with the methods of `Client`, to be awaited in asyncio.

    What `Client` gives one by one is for `async for`. Use it in an `async with` block.

    Args:
        url: As of `Client`.
        key: As of `Client`.
        transport: As of `Client`, of the kind with `await`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(**connection_options(url, key), transport=transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._http.base_url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _carry_out(self, made: Request[T] | Operation[T]) -> T:
        """The result of a request or an operation."""
        course = _Course(_operation(made))
        async for _ in self._steps(course):
            pass
        return course.result

    def _values_of(self, series: Series[T]) -> AsyncGenerator[T]:
        """The values of a series, as they come."""
        return self._steps(_Course(series))

    async def _steps(self, course: "_Course[Any]") -> AsyncGenerator[Any]:
        with closing(course.operation):
            async with aclosing(_AsyncExchange(self._http)) as exchange:
                while (step := course.advance()) is not None:
                    if isinstance(step, Give):
                        yield step.value
                        continue
                    try:
                        course.answer(await exchange.carry_out(step))
                    except httpx2.TransportError as error:
                        course.fail(error)

    submit = _await(requests.submit)
    estimate = _await(requests.estimate)
    jobs = _async_each(operations.jobs)
    job_page = _await(requests.job_page)
    job = _await(requests.job)
    events = _async_each(operations.events)
    wait = _await(operations.wait)
    cancel = _await(requests.cancel)
    delete = _await(operations.delete)
    scores = _await(operations.scores)
    download = _await(operations.download)
    samples = _async_each(operations.samples)
    doubtful = _async_each(operations.doubtful)
    score_page = _await(requests.score_page)
    errors = _async_each(operations.errors)
    tags = _await(requests.tags)
    missing_boxes = _await(requests.missing_boxes)
    region_picture = _await(requests.region_picture)
    thumbnail = _await(requests.thumbnail)
    columns = _await(requests.columns)
    attach = _await(requests.attach)
    detach = _await(requests.detach)
    compare = _await(operations.compare)
    comparison = _await(requests.comparison)
    comparisons = _await(requests.comparisons)
    comparison_classes = _await(requests.comparison_classes)
    comparison_table = _await(requests.comparison_table)
    comparison_marks = _await(requests.comparison_marks)
    delete_comparison = _await(requests.delete_comparison)
    marks = _async_each(operations.marks)
    mark = _await(requests.mark)
    score_images = _await(requests.score_images)
    score_texts = _await(requests.score_texts)
    score_features = _await(requests.score_features)
    upload = _await(operations.upload)
    uploads = _await(requests.uploads)
    upload_status = _await(requests.upload_status)
    delete_upload = _await(requests.delete_upload)
    folders = _await(requests.folders)
    backbones = _await(requests.backbones)
    usage = _await(requests.usage)
    readiness = _await(requests.readiness)
