"""What is said of a cluster that does not answer, and what Ray is told; without Ray."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from difficulty_service.base import ray_connection
from difficulty_service.base.errors import EngineError
from difficulty_service.base.ray_connection import HTTP2_SETTINGS, connected

NAMES = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS")


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The addresses that a stand-in for Ray connects to, on a machine without tokens."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    asked: list[str] = []
    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda address, **_options: asked.append(address),
        shutdown=lambda: None,
    )
    monkeypatch.setattr(ray_connection, "load_ray", lambda: ray)
    monkeypatch.setattr(ray_connection, "CONNECT_SECONDS", 0.2)
    return asked


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """The address of a server that says the same to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(answer)
                connection.recv(100)
                closed.wait(10)

        closed = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        closed.set()
        thread.join()


def test_a_server_that_speaks_as_a_cluster_does_is_connected_to(addresses: list[str]) -> None:
    with server(b"\0\0\x24" + HTTP2_SETTINGS[3:] + b"\0" * 36) as address, connected(address):
        assert addresses == [address]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n"])
def test_another_server_is_known_before_ray_waits_for_it(
    answer: bytes, addresses: list[str]
) -> None:
    with (
        server(answer) as address,
        pytest.raises(EngineError, match=r"\(another program listens there\)"),
        connected(address),
    ):
        pass

    assert addresses == []


def test_an_address_of_the_environment_is_advised_to_be_unset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")

    with pytest.raises(EngineError, match="or unset RAY_ADDRESS to use this machine"):
        connected(None).__enter__()


def test_an_address_that_is_given_is_advised_to_be_left_out() -> None:
    with pytest.raises(EngineError, match="or omit ray_address to use this machine"):
        connected("127.0.0.1:9").__enter__()


def test_a_token_that_is_missing_is_spoken_of_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(EngineError, match=r"a cluster with a token needs it in ~/\.ray/auth_token"):
        connected("127.0.0.1:9").__enter__()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a")
    with pytest.raises(EngineError, match=r"alone$"):
        connected("127.0.0.1:9").__enter__()


@pytest.mark.parametrize(
    ("has_token", "before", "mode"),
    [(False, None, None), (True, None, "token"), (True, "disabled", "disabled")],
)
def test_a_token_of_this_machine_is_used_unless_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    before: str | None,
    mode: str | None,
    *,
    has_token: bool,
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before
    if has_token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("a")

    ray_connection._set_environment()

    assert os.environ.get("RAY_AUTH_MODE") == mode
    assert os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"
