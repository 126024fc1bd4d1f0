"""Addresses that the server listens on, with and without keys."""

import contextlib
import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn

from api.server import check_address, listen, signals_stop, url_of
from difficulty_service.base.errors import ConfigError


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    with (
        listen("127.0.0.1", 0, 60) as listener,
        socket.create_connection(listener.getsockname()[:2]),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_the_kernel_takes_few_answers_for_a_client_that_reads_none() -> None:
    taken = 0
    with (
        listen("127.0.0.1", 0, 60) as listener,
        socket.create_connection(listener.getsockname()[:2]),
        listener.accept()[0] as connection,
    ):
        connection.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                taken += connection.send(bytes(1 << 14))

    assert taken < 1 << 20


def test_the_url_has_the_free_port_that_was_chosen() -> None:
    with listen("127.0.0.1", 0, 60) as listener:
        port = listener.getsockname()[1]

        assert url_of(listener) == f"http://127.0.0.1:{port}"


def test_a_busy_port_is_named_with_a_remedy() -> None:
    with listen("127.0.0.1", 0, 60) as listener:
        port = listener.getsockname()[1]

        with pytest.raises(ConfigError, match=rf"port {port} of 127.0.0.1: .*use another port"):
            listen("127.0.0.1", port, 60)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1"])
def test_this_machine_alone_needs_no_key(host: str) -> None:
    check_address(host, has_keys=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])  # noqa: S104
def test_others_are_not_answered_as_long_as_there_is_no_key(host: str) -> None:
    with pytest.raises(ConfigError, match="keys create"):
        check_address(host, has_keys=False)

    check_address(host, has_keys=True)


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(ConfigError, match="is unknown"):
        check_address("no such host", has_keys=False)


def server() -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config("not started", log_config=None))


@contextmanager
def handled(number: signal.Signals, by: signal.Handlers) -> Iterator[None]:
    """Has this process handle a signal so, whatever those that started it do."""
    before = signal.signal(number, by)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_the_server_in_order(name: str) -> None:
    stopped, number = server(), signal.Signals[name]

    with handled(number, signal.SIG_DFL), signals_stop(stopped):
        signal.raise_signal(number)

    assert stopped.should_exit


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    running = server()

    with handled(signal.SIGHUP, signal.SIG_IGN), signals_stop(running):
        signal.raise_signal(signal.SIGHUP)

    assert not running.should_exit


def test_the_kernel_ends_a_connection_whose_client_takes_nothing_of_an_answer() -> None:
    with (
        listen("127.0.0.1", 0, answer_timeout=0.3) as listener,
        socket.create_connection(listener.getsockname()[:2]),
        listener.accept()[0] as connection,
    ):
        connection.settimeout(20)

        with pytest.raises(TimeoutError) as caught:
            connection.sendall(bytes(32 << 20))

    assert caught.value.errno == errno.ETIMEDOUT
