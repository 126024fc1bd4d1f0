"""A key that is no longer valid ends what it began, and none has more streams than its share."""

import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Engine

from api.storage.database import connect, now
from api.storage.keys import change_key, list_keys, revoke_key, rotate_key
from tests.api.live.running import Service, StartService

PER_KEY = 20
PATIENCE = 30.0  # seconds; more than the check of a key takes


@pytest.fixture(scope="module")
def idle_service(start_for_all: StartService, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """A service with keys whose worker looked for jobs once, so that they stay queued."""
    database = tmp_path_factory.mktemp("idle") / "difficulty.sqlite"
    return start_for_all(f"sqlite:///{database}", poll=3600)


@pytest.fixture
def mine(idle_service: Service, engine: Engine, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Id and secret of a key that no other test has."""
    secret = idle_service.new_key(request.node.name)
    (key,) = (key.id for key in list_keys(engine) if key.name == request.node.name)
    return key, secret


@pytest.fixture
def engine(idle_service: Service) -> Iterator[Engine]:
    """The database of the service."""
    engine = connect(idle_service.environment["DIFFICULTY_DATABASE_URL"])
    yield engine
    engine.dispose()


def new_job(client: Any) -> str:  # noqa: ANN401
    body = {"dataset": {"root": "photos", "path": "train"}, "backbone": "builtin"}
    return str(client.post("/v1/jobs", json=body).json()["links"]["events"])


def revoke(engine: Engine, key: str) -> None:
    assert revoke_key(engine, key)


def end(engine: Engine, key: str) -> None:
    """Has a key end a second later."""
    with engine.connect() as connection:
        at = now(connection) + 1
    assert change_key(engine, key, lambda terms: replace(terms, expires_at=at))


def rotate(engine: Engine, key: str) -> None:
    assert rotate_key(engine, key, 0)


def restrict(engine: Engine, key: str) -> None:
    assert change_key(engine, key, lambda terms: replace(terms, roots=frozenset({"others"})))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "reason", "status"),
    [
        (revoke, "revoked or replaced during the request", 401),
        (end, "the key expired at", 401),
        (rotate, "revoked or replaced during the request", 401),
        (restrict, "may no longer use the root 'photos'", 404),
    ],
)
def test_events_end_with_a_problem_when_their_key_is_no_longer_valid(
    idle_service: Service,
    engine: Engine,
    mine: tuple[str, str],
    act: Callable[[Engine, str], None],
    reason: str,
    status: int,
) -> None:
    key, secret = mine
    with idle_service.client(secret) as client:
        address = new_job(client)
        with client.stream("GET", address) as events:
            lines = events.iter_lines()
            assert next(lines) == "event: state"
            act(engine, key)
            rest = list(lines)
        again = client.get(address)

    last = rest[rest.index("event: problem") + 1]
    problem = json.loads(last.removeprefix("data: "))
    assert problem["type"] == "/problems/unauthorised"
    assert reason in problem["detail"]
    assert (problem["status"], again.status_code) == (401, status)


@pytest.mark.slow
def test_events_of_a_caller_without_a_key_end_with_the_first_key(
    start_service: StartService, sqlite_url: str
) -> None:
    service = start_service(sqlite_url, poll=3600)
    with service.client() as client, client.stream("GET", new_job(client)) as events:
        lines = events.iter_lines()
        assert next(lines) == "event: state"
        service.new_key("first")

        assert "event: problem" in list(lines)


@pytest.mark.slow
@pytest.mark.parametrize("act", [revoke, end])
def test_an_upload_ends_when_its_key_is_no_longer_valid_and_keeps_what_arrived(
    idle_service: Service, engine: Engine, mine: tuple[str, str], act: Callable[[Engine, str], None]
) -> None:
    key, secret = mine
    with idle_service.client(secret) as client:
        upload = client.post("/v1/uploads", json={"format": "zip"}).json()["links"]["self"]
    parts = urlsplit(idle_service.url)
    head = (
        f"PUT {upload} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
        "Content-Length: 100000000\r\n\r\n"
    )
    with socket.create_connection((str(parts.hostname), parts.port or 80), PATIENCE) as connection:
        connection.sendall(head.encode())
        answer = send_until_answered(connection, lambda: act(engine, key))

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"/problems/unauthorised" in answer


def send_until_answered(connection: socket.socket, after_first: Callable[[], None]) -> bytes:
    """Goes on sending; the answer, or nothing where there is none in time."""
    connection.settimeout(0.05)
    end = time.monotonic() + PATIENCE
    answer = b""
    connection.sendall(b"x" * 1000)
    after_first()
    while not answer and time.monotonic() < end:
        connection.sendall(b"x" * 1000)
        with contextlib.suppress(TimeoutError):
            answer = connection.recv(1 << 16)
    connection.settimeout(PATIENCE)
    with contextlib.suppress(ConnectionError):
        # Until the body has ended: the server waits for the rest of the upload before it hangs up.
        while not answer.endswith(b"}") and (piece := connection.recv(1 << 16)):
            answer += piece
    return answer


@pytest.mark.slow
def test_streams_that_are_asked_for_at_once_are_counted_one_by_one(
    idle_service: Service, mine: tuple[str, str]
) -> None:
    with idle_service.client(mine[1]) as client:
        address = new_job(client)

        def status(_number: int) -> int:
            with client.stream("GET", address) as events:
                lines = events.iter_lines()  # without a name it would be closed, and the stream too
                next(lines)
                barrier.wait(PATIENCE)
                return int(events.status_code)

        for _ in range(2):  # the streams of the first round are given back
            barrier = Barrier(PER_KEY + 5)  # all are open before the first is closed
            with ThreadPoolExecutor(PER_KEY + 5) as pool:
                statuses = Counter(pool.map(status, range(PER_KEY + 5)))

            assert statuses == {200: PER_KEY, 429: 5}
