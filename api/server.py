"""Runs the web application: checks its address, listens, and shuts down cleanly."""

import errno
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType

import structlog
import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from api.app import create_app
from api.explored import Rounds
from api.http.connections import (
    IDLE_SECONDS,
    Front,
    connections_within,
    raise_descriptor_limit,
)
from api.http.protocol import protocol_of
from api.logs import are_for_people, printable_settings, set_up_logging
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import open_database
from api.storage.identity import require_own_artifacts
from api.storage.keys import any_keys
from api.worker.processes import running_workers
from difficulty_service.base.errors import ConfigError, Setting
from difficulty_service.base.process_setup import have_arrow_use_malloc

SHUTDOWN_SECONDS = 10  # time limit for answers in progress once the server is told to stop
UNSENT_BYTES = 128 << 10
"""Bytes of answers that the kernel keeps for a connection beside those that are on their way."""


def run_server(
    settings: Settings,
    workers: int,
    on_listening: Callable[[str], None] = lambda _: None,
    rounds: Rounds | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP, with so many worker processes beside the server.

    `on_listening` is called with the address of the server, which answers a moment later. `rounds`
    are those of a score file that is explored.
    """
    set_up_logging(settings)
    log = structlog.get_logger()
    # A person who starts the server looks for its address, not for a hundred settings.
    tell = log.debug if are_for_people(settings, sys.stderr) else log.info
    tell("settings", **printable_settings(settings))
    with open_database(settings) as engine:
        has_keys = any_keys(engine)
        if settings.takes_jobs:  # also here, where the reason becomes one sentence
            require_own_artifacts(engine, open_artifacts(settings.artifact_root))
    check_address(settings.host, has_keys=has_keys)

    def is_stopping() -> bool:
        return server.should_exit

    app = create_app(settings, rounds, is_stopping)
    trusting = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))  # type: ignore[arg-type]
    # Outside of it, because a connection is known by its own address.
    front = Front(
        trusting,  # type: ignore[arg-type]
        settings,
        allowed_connections(settings, raise_descriptor_limit()),
    )
    config = uvicorn.Config(
        front,
        host=settings.host,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http=protocol_of(front),  # type: ignore[arg-type]
        proxy_headers=False,
        timeout_keep_alive=int(IDLE_SECONDS),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    with closing(listen(settings.host, settings.port, settings.answer_timeout)) as listener:
        on_listening(url_of(listener))
        log.info("listening", url=url_of(listener), keys=has_keys)
        if not has_keys:
            log.warning(
                "no-keys",
                consequence="only this machine is answered",
                remedy="difficulty keys create",
            )
        have_arrow_use_malloc()
        # What is loaded by now stays; without these objects a full collection takes a few
        # milliseconds instead of 300.
        gc.collect()
        gc.freeze()
        with signals_stop(server), running_workers(settings, workers):
            server.run(sockets=[listener])
    if not server.started:
        raise ConfigError("the server could not start", "see the reason logged above")
    log.info("server-stopped")


def allowed_connections(settings: Settings, descriptors: int) -> int:
    """Number of connections, where this process may have so many file descriptors open."""
    allowed = connections_within(descriptors)
    if allowed < settings.max_connections:
        structlog.get_logger().warning(
            "fewer-connections",
            max_connections=allowed,
            wanted=settings.max_connections,
            reason=f"the limit of file descriptors is {descriptors}",
            remedy="raise the hard limit of `ulimit -n`, or lower DIFFICULTY_MAX_CONNECTIONS",
        )
    return min(allowed, settings.max_connections)


def check_address(host: str, *, has_keys: bool) -> None:
    """Refuses an address that other machines can reach while no key is required."""
    if has_keys or all(ipaddress.ip_address(address).is_loopback for address in addresses(host)):
        return
    raise ConfigError(
        f"{host or 'an empty host'} can be reached from other machines, and there is no API key",
        "make a key with `difficulty keys create NAME`, or use ",
        Setting("host", "127.0.0.1"),
        parameter="host",
    )


def addresses(host: str) -> list[str]:
    """All addresses of a host."""
    try:
        infos = socket.getaddrinfo(
            host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ConfigError(f"the host {host!r} is unknown: {error}", parameter="host") from None
    # Without the scope that an IPv6 address may end with.
    return [str(info[4][0]).partition("%")[0] for info in infos]


def listen(host: str, port: int, answer_timeout: float) -> socket.socket:
    """A listening socket; port 0 stands for any free one.

    The kernel ends a connection whose client takes nothing of an answer for so many seconds.
    """
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = infos[0]
    try:
        listener = socket.create_server(address[:2], family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen on port {port} of {host or 'all addresses'}: {reason_of(error)}",
            "use another ",
            Setting("port"),
            ", or 0 for any free one",
            parameter="port",
        ) from None
    # Connections inherit the option. The event loop sets it only on sockets created with a protocol
    # number; without it every answer waits 40 ms for the client's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Also inherited. Otherwise the kernel takes up to 4 MB of answers for a client that reads none
    # of them, all of which this process would have to make at once.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * answer_timeout))
    return listener


def reason_of(error: Exception) -> str:
    """Why a port cannot be used, in plain words."""
    number = error.errno if isinstance(error, OSError) else None
    known = {
        errno.EADDRINUSE: "another program listens on it, perhaps another `difficulty serve`",
        errno.EACCES: "only the administrator may use ports below 1024",
    }
    return known.get(number or 0, str(error))


def url_of(listener: socket.socket) -> str:
    """URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def signals_stop(server: uvicorn.Server) -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP stop the server and do nothing else, so that it exits cleanly.

    uvicorn stops at the first two and then raises them again for the handler that was installed
    before. A SIGHUP that is ignored, as `nohup` has it, stays ignored.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
