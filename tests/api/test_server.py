"""Addresses that the server listens on, with and without keys."""

import contextlib
import socket

import pytest

from api.server import check_address, listen, url_of
from difficulty_service.base.errors import ConfigError


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()[:2]),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_the_kernel_takes_few_answers_for_a_client_that_reads_none() -> None:
    taken = 0
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()[:2]),
        listener.accept()[0] as connection,
    ):
        connection.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                taken += connection.send(bytes(1 << 14))

    assert taken < 1 << 20


def test_the_url_has_the_free_port_that_was_chosen() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        assert url_of(listener) == f"http://127.0.0.1:{port}"


def test_a_busy_port_is_named_with_a_remedy() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        with pytest.raises(ConfigError, match=rf"port {port} of 127.0.0.1: .*use another port"):
            listen("127.0.0.1", port)


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
