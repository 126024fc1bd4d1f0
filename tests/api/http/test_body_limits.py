"""Bodies are counted on the wire, whatever length a request declares."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI, Form, Request
from starlette.types import Receive, Scope, Send

from api.http.limits import BodyLimits, limits_of
from api.http.problem_responses import add_handlers
from api.http.problems import CONTENT_TYPE
from api.settings import Settings

LIMIT = 1000

Messages = list[dict[str, Any]]


async def echo_size(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the body, as any application that reads it would."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def ask(
    app: Callable[..., Awaitable[None]], chunks: list[bytes], declared: bytes | None = None
) -> tuple[int, int, int]:
    """Sends a body in chunks past the limit of 1000 bytes.

    Returns:
        Status, bytes that the application saw where it is 200, and chunks that were read.
    """
    sent: Messages = []
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [] if declared is None else [(b"content-length", declared)]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    asyncio.run(BodyLimits(app, lambda _: LIMIT)(scope, receive, send))
    status = sent[0]["status"]
    assert [message["type"] for message in sent].count("http.response.start") == 1
    return status, int(sent[1]["body"]) if status == 200 else 0, len(chunks) - len(left)


@pytest.mark.parametrize("declared", [None, b"1000", b"3", b"none", b"-5", b"\xb2"])
def test_a_body_of_the_limit_passes_whatever_length_is_declared(declared: bytes | None) -> None:
    assert ask(echo_size, [b"x" * 600, b"x" * 400], declared) == (200, 1000, 2)


@pytest.mark.parametrize("declared", [None, b"1000", b"3", b"none", b"-5", b"\xb2"])
def test_a_body_above_it_is_refused_at_the_chunk_that_exceeds(declared: bytes | None) -> None:
    chunks = [b"x" * 600, b"x" * 401, b"x", b"x"]

    assert ask(echo_size, chunks, declared) == (413, 0, 2)


def test_a_length_above_the_limit_is_refused_before_anything_is_read() -> None:
    assert ask(echo_size, [b"x"], b"1001") == (413, 0, 0)


@pytest.mark.parametrize(
    ("method", "path", "is_upload"),
    [
        ("PUT", "/v1/uploads/abc", True),
        ("PUT", "/v1/uploads/abc/", True),
        ("POST", "/v1/uploads", False),
        ("POST", "/v1/uploads/abc", False),
        ("PUT", "/v1/uploads/abc/more", False),
        ("PUT", "/x/v1/uploads/abc", False),
        ("POST", "/v1/jobs", False),
    ],
)
def test_only_the_contents_of_uploads_have_the_limit_of_uploads(
    method: str, path: str, *, is_upload: bool
) -> None:
    settings = Settings(max_body_bytes=10, max_upload_bytes=20)

    limit = limits_of(settings)({"method": method, "path": path})

    assert limit == (20 if is_upload else 10)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    """A real server whose bodies may have 1000 bytes."""
    app = FastAPI()
    add_handlers(app)
    app.add_middleware(BodyLimits, limit_of=lambda _: LIMIT)

    @app.post("/json")
    async def take(body: dict[str, str]) -> int:
        return len(body)

    @app.post("/form")
    async def take_form(field: Annotated[str, Form()]) -> int:
        return len(field)

    @app.post("/raw")
    async def count(request: Request) -> int:
        return len(await request.body())

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()
    server.should_exit = True
    thread.join()
    listener.close()


def chunks(head: bytes) -> Iterator[bytes]:
    yield head
    for _ in range(100):
        yield b"x" * 100


@pytest.mark.parametrize(
    ("path", "content_type", "head"),
    [
        ("/json", "application/json", b'{"a": "'),
        ("/form", "application/x-www-form-urlencoded", b"field="),
        (
            "/form",
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="field"\r\n\r\n',
        ),
        ("/raw", "application/json", b'{"a": "'),
    ],
)
def test_a_body_without_a_length_is_a_problem_once_it_is_too_large_and_no_parse_error(
    server: tuple[str, int], path: str, content_type: str, head: bytes
) -> None:
    headers = {"content-type": content_type}

    response = httpx2.post(url(server, path), content=chunks(head), headers=headers)

    assert response.status_code == 413
    assert response.headers["content-type"] == CONTENT_TYPE
    assert response.json()["type"] == "/problems/too-large"
    assert "1,000 bytes" in response.json()["detail"]
    assert response.headers["connection"] == "close"


def test_a_declared_length_that_is_too_large_is_answered_at_once(server: tuple[str, int]) -> None:
    head = b"POST /raw HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n"

    answer = converse(server, head)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"\r\ncontent-type: application/problem+json\r\n" in answer


def test_what_follows_a_length_that_is_too_small_is_not_part_of_the_body(
    server: tuple[str, int],
) -> None:
    head = b"POST /raw HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 10\r\n\r\n"

    answer = converse(server, head + b"x" * 100_000)

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n10")


def url(server: tuple[str, int], path: str) -> str:
    return f"http://{server[0]}:{server[1]}{path}"


def converse(server: tuple[str, int], request: bytes) -> bytes:
    """Sends raw bytes; returns everything received until the server closes the connection."""
    answer = b""
    with socket.create_connection(server, timeout=120) as connection:
        connection.sendall(request)
        try:
            while block := connection.recv(65536):
                answer += block
        except ConnectionResetError:
            pass  # the server did not read all that was sent
    return answer
