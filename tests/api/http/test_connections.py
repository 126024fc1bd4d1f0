"""What makes room for a new connection, who is refused, and what is kept of what a client sends."""

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from api.http.connections import FEWEST, RESERVED, Front, connections_within, network_of
from api.http.protocol import AHEAD_BYTES, protocol_of
from api.settings import Settings

pytestmark = pytest.mark.anyio

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /" + HOST + b"\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def respond(send: Send, content: bytes = b"ok") -> None:
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def application(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answers when it has the whole body."""
    while (await receive()).get("more_body"):
        pass
    await respond(send)


@asynccontextmanager
async def serving(
    app: Application, connections: int = 100, **settings: object
) -> AsyncIterator[Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]]:
    """A server of an application on this event loop; opens connections from addresses."""
    front = Front(app, Settings.model_validate(settings), connections)
    config = Config(
        front,
        http=protocol_of(front),  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
    )
    config.load()
    create, state = protocol_of(front), ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: create(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    writers: list[asyncio.StreamWriter] = []

    async def connect(source: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        before = len(state.connections)
        streams = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=(f"127.0.0.{source}", 0)
        )
        writers.append(streams[1])
        for _ in range(5):  # until the server has it
            await asyncio.sleep(0)
            if len(state.connections) > before:
                break
        return streams

    try:
        yield connect
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()
        while state.connections or state.tasks:
            await asyncio.sleep(0.01)


async def is_open(reader: asyncio.StreamReader) -> bool:
    """Whether the server has not closed a connection on which nothing was sent."""
    await asyncio.sleep(0.02)
    return not reader.at_eof() and reader.exception() is None


async def test_a_new_connection_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    async with serving(application, connections=2) as connect:
        streams = [await connect() for _ in range(2 + RESERVED)]
        streams[0][1].write(GET)
        await streams[0][0].readuntil(b"ok")

        await connect()

        assert [await is_open(reader) for reader, _ in streams] == [True, False, *[True] * RESERVED]


async def test_an_address_at_its_limit_makes_room_among_its_own_connections() -> None:
    async with serving(application, max_connections_per_address=2) as connect:
        other, _ = await connect(7)
        mine = [await connect() for _ in range(2 + RESERVED)]

        await connect()

        assert await is_open(other)
        assert [await is_open(reader) for reader, _ in mine] == [False, *[True] * (1 + RESERVED)]


async def test_a_proxy_may_have_as_many_as_there_are() -> None:
    trusted = ("127.0.0.1/32",)
    async with serving(
        application, max_connections_per_address=1, trusted_proxies=trusted
    ) as connect:
        streams = [await connect() for _ in range(3 + RESERVED)]

        assert [await is_open(reader) for reader, _ in streams] == [True] * (3 + RESERVED)


async def test_above_the_limit_of_requests_all_but_health_is_refused() -> None:
    async with serving(application, connections=2) as connect:
        for _ in range(2):
            _, writer = await connect()
            writer.write(b"POST /" + HOST + b"Content-Length: 1\r\n\r\n")
        await asyncio.sleep(0.02)

        answers = []
        for path in (b"/", b"/healthz"):
            reader, writer = await connect()
            writer.write(b"GET " + path + HOST + b"\r\n")
            answers.append((await reader.readline()).split()[1])

        assert answers == [b"503", b"200"]


async def test_a_request_that_is_sent_before_an_answer_has_ended_is_answered_too() -> None:
    go_on = asyncio.Event()

    async def lengthy(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b""})

    async with serving(lengthy) as connect:
        reader, writer = await connect()
        writer.write(GET)
        await reader.readuntil(b"ok")  # all of it, as the client knows
        writer.write(GET)
        await asyncio.sleep(0.02)
        go_on.set()

        assert await reader.readuntil(b"ok")


async def test_an_answer_that_is_cancelled_ends_its_connection_and_nothing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answering: list[asyncio.Task[None]] = []

    async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
        answering.extend(filter(None, [asyncio.current_task()]))
        headers = [(b"content-length", b"3")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok", "more_body": True})
        await asyncio.Event().wait()

    async with serving(endless) as connect:
        reader, writer = await connect()
        writer.write(GET)
        await reader.readuntil(b"ok")
        answering[0].cancel()

        assert await reader.read() == b""
    assert not answering[0].cancelled()
    assert caplog.records == []


@pytest.mark.slow
async def test_requests_that_are_sent_ahead_wait_and_are_all_answered_in_order() -> None:
    async def listening(scope: Scope, receive: Receive, send: Send) -> None:
        """Waits for the end of the connection while it answers, as long answers do."""
        await receive()
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0.001)
        waiting.cancel()
        await respond(send, b"<" + scope["path"].encode() + b">")

    async with serving(listening) as connect:
        reader, writer = await connect()
        heads = [b"GET /%d" % number + HOST + b"X-A: " + b"a" * 8000 for number in range(500)]
        writer.write(b"\r\n\r\n".join([*heads, b""]))  # 4 MB

        for number in range(500):
            assert (await reader.readuntil(b">")).endswith(b"</%d>" % number)


async def test_bodies_that_are_sent_ahead_close_the_connection_before_they_fill_the_memory() -> (
    None
):
    async def slow(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await asyncio.sleep(0.001)
        await respond(send)

    async with serving(slow) as connect:
        reader, writer = await connect()
        writer.write((b"POST /" + HOST + b"Content-Length: 1\r\n\r\na") * (20 * AHEAD_BYTES // 60))

        with suppress(ConnectionError):
            await reader.read()  # until the server closes the connection

        assert reader.at_eof() or reader.exception()


async def test_a_client_that_has_sent_much_may_not_pause_for_longer_than_another() -> None:
    async def saying(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await application(scope, receive, send)
        except HTTPException as error:
            await respond(send, f"{error.status_code} {error.detail}".encode())

    async with serving(saying, body_timeout=0.2, min_rate=10) as connect:
        reader, writer = await connect()
        writer.write(b"POST /" + HOST + b"Content-Length: 1000000\r\n\r\n" + b"a" * 100_000)

        assert await reader.readuntil(b"408 the body arrived more slowly than allowed: 10 bytes")


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0, 1e6])
async def test_an_answer_of_which_a_client_takes_too_little_ends_with_its_connection(
    rate: float,
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 16)

    async with serving(StreamingResponse(endless()), answer_timeout=0.3, min_rate=rate) as connect:
        reader, writer = await connect()
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        connection = writer.transport.get_extra_info("socket")
        taken = b""
        for _ in range(100):
            await asyncio.sleep(0.01)
            with suppress(BlockingIOError):
                taken = os.read(connection.fileno(), 1)

        with suppress(ConnectionError):
            while rate and taken:
                taken = os.read(connection.fileno(), 1 << 20)
        assert bool(taken) is not bool(rate)


async def test_a_health_check_starts_before_the_requests_that_came_before_it() -> None:
    started: list[str] = []

    async def noting(scope: Scope, _receive: Receive, send: Send) -> None:
        started.append(scope["path"])
        await respond(send)

    async with serving(noting) as connect:
        paths = [*(f"/{number}" for number in range(20)), "/healthz"]
        streams = [await connect() for _ in paths]
        for path, (_, writer) in zip(paths, streams, strict=True):  # all arrive before the next
            writer.write(b"GET " + path.encode() + HOST + b"\r\n")
        while len(started) < len(paths):
            await asyncio.sleep(0)

    assert started.index("/healthz") < 3
    assert [path for path in started if path != "/healthz"] == paths[:-1]


async def test_two_hosts_are_refused() -> None:
    async with serving(application) as connect:
        reader, writer = await connect()
        writer.write(b"GET /" + HOST + b"Host: example.org\r\n\r\n")

        answer = await reader.read()

        assert answer.startswith(b"HTTP/1.1 400")
        assert b"/problems/bad-request" in answer


CHUNKED = b"Transfer-Encoding: chunked\r\n"
TWO_LENGTHS = [
    b"Content-Length: 2\r\nContent-Length: 2\r\n",
    b"Content-Length: 2\r\nX: y\r\nCONTENT-LENGTH: 2\r\n",
    b"Content-Length: 2, 2\r\n",
    b"Content-Length:\r\n 2,\r\n\t2\r\n",
    b"Content-Length: 2\n" + CHUNKED,
    CHUNKED + b"content-length: 2\r\n",
    CHUNKED + CHUNKED,
]
# What one length says is a body is the next request by the other one.
HIDDEN = b"\r\n0\r\n\r\nGET /hidden" + HOST + b"\r\n"


@pytest.mark.parametrize("lengths", TWO_LENGTHS)
@pytest.mark.parametrize("before", [b"", GET])
async def test_a_body_with_two_lengths_is_refused_and_ends_the_connection(
    lengths: bytes, before: bytes
) -> None:
    paths = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await application(scope, receive, send)

    async with serving(app) as connect:
        reader, writer = await connect()
        writer.write(before + b"POST /two" + HOST + lengths + HIDDEN)

        answers = (await reader.read()).split(b"HTTP/1.1 ")[1:]

        assert paths == ["/"] * bool(before)
        assert [answer[:3] for answer in answers] == [b"200"] * bool(before) + [b"400"]
        assert b"states the length of its body twice" in answers[-1]
        assert b"connection: close" in answers[-1].lower()


async def test_a_body_with_two_lengths_is_refused_behind_one_that_was_answered_early() -> None:
    paths = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await respond(send)

    async with serving(app) as connect:
        reader, writer = await connect()
        writer.write(b"POST /" + HOST + b"Content-Length: 2\r\n\r\n")
        await reader.readuntil(b"ok")
        writer.write(b"ab" + b"POST /two" + HOST + TWO_LENGTHS[0] + HIDDEN)

        answer = await reader.read()

        assert paths == ["/"]
        assert answer.startswith(b"HTTP/1.1 400")


async def test_a_body_with_one_length_is_read_and_its_bytes_are_no_head() -> None:
    body = b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"
    one = b"Content-Length: %d\r\nX: Content-Length: 1, 1\r\n\r\n" % len(body)
    async with serving(application) as connect:
        reader, writer = await connect()

        for _ in range(2):
            writer.write(b"POST /" + HOST + one + body)
            answer = await reader.readuntil(b"ok")

            assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
)
def test_one_customers_ipv6_addresses_count_as_one(one: str, other: str, is_same: bool) -> None:  # noqa: FBT001
    assert (network_of(ip_address(one)) == network_of(ip_address(other))) is is_same


def test_few_descriptors_allow_fewer_connections_than_many() -> None:
    assert FEWEST == connections_within(100) < connections_within(1024) < 512
    assert connections_within(4096) > 512


@pytest.mark.slow
def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(300, {hard})))\n"
        "from api.http.connections import raise_descriptor_limit\n"
        "print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )

    shown = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", lowered], capture_output=True, text=True, check=True
    )

    assert shown.stdout.split() == ["300", "300", "300"]
