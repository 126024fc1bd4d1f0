"""The connection to a Ray cluster; the only module that imports ray."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from difficulty_service.base.errors import EngineError, Setting
from difficulty_service.base.extras import needs_extra

CONNECT_SECONDS = 10.0

TOKEN_FILE = "~/.ray/auth_token"  # noqa: S105 - its place

HTTP2_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The start of what a server of HTTP/2, as Ray's, says first: a frame of its settings."""

HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HTTP2_SETTINGS


@cache
def load_ray() -> Any:  # noqa: ANN401 - a module that is nearly untyped
    """The package, imported only where a cluster is used because that takes seconds."""
    _set_environment()
    with needs_extra("the engine ray", "ray", parameter="engine"):
        import ray
        import ray.exceptions
    return ray


def _set_environment() -> None:
    """Sets what Ray reads when it is imported, where the user has not set it."""
    # Hides GPUs from actors that reserve none: the default of a future version, of which this one
    # warns.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Under `uv run` Ray would send the current directory to every node, up to half a gigabyte. The
    # nodes have this package installed, and are asked for its version.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # Ray takes the token of this machine for clusters that it starts, but not for others.
    if _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Inside, this process is connected to a cluster; an existing connection is kept.

    Args:
        address: As `ray.init` takes it; None for `RAY_ADDRESS`, or for a cluster on this machine
            alone where that is not set.

    Raises:
        EngineError: No cluster answers there.
    """
    if load_ray().is_initialized():
        yield
        return
    of_environment = None if address else os.environ.get("RAY_ADDRESS")
    address = address or of_environment or "local"
    try:
        _require_listener(address)
        load_ray().init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        needs_token = f"; a cluster with a token needs it in {TOKEN_FILE} or RAY_AUTH_TOKEN"
        raise EngineError(
            f"no Ray cluster answers at {address!r} ({first_line(error)})",
            "start one with `ray start --head`, or ",
            *(("unset RAY_ADDRESS",) if of_environment else ("omit ", Setting("ray_address"))),
            " to use this machine alone",
            "" if _has_token() else needs_token,
            parameter="ray_address",
        ) from None
    try:
        yield
    finally:
        load_ray().shutdown()


def _has_token() -> bool:
    """Whether this machine has a token for clusters, where Ray looks for it."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    return any(os.environ.get(name) for name in names) or Path(TOKEN_FILE).expanduser().exists()


def _require_listener(address: str) -> None:
    """Raises OSError where no cluster listens; Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "://" in address:
        return
    with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS") == "1":
            return
        connection.sendall(HTTP2_GREETING)
        try:
            answer = connection.recv(len(HTTP2_SETTINGS), socket.MSG_WAITALL)
        except TimeoutError:
            answer = b""
    if answer[3:] != HTTP2_SETTINGS[3:]:  # without the number of settings
        raise ConnectionError("another program listens there")


def nodes_of_cluster() -> list[Mapping[str, float]]:
    """Resources of each node that is alive, in use or not."""
    nodes = load_ray().nodes()
    return [node["Resources"] for node in nodes if node["Alive"]]


def this_node() -> Any:  # noqa: ANN401 - a strategy of Ray's
    """The strategy of what is to run on the node of this process."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(load_ray().get_runtime_context().get_node_id(), soft=True)


def last_line(error: BaseException) -> str:
    """What an error of another process says after the lines of its traceback."""
    return str(error).strip().rpartition("\n")[2] or type(error).__name__


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
