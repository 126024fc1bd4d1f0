"""The connection to a Ray cluster; the only module that imports ray."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from difficulty_service.base.errors import EngineError, Setting
from difficulty_service.base.extras import needs_extra

CONNECT_SECONDS = 10.0


@cache
def load_ray() -> Any:  # noqa: ANN401 - a module that is nearly untyped
    """The package, imported only where a cluster is used because that takes seconds."""
    # Hides GPUs from actors that reserve none: the default of a future version, of which this one
    # warns.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with needs_extra("the engine ray", "ray", parameter="engine"):
        import ray
        import ray.exceptions
    return ray


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
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    try:
        _require_listener(address)
        load_ray().init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"no Ray cluster answers at {address!r} ({first_line(error)})",
            "start one with `ray start --head`, or omit ",
            Setting("ray_address"),
            " to use this machine alone",
            parameter="ray_address",
        ) from None
    try:
        yield
    finally:
        load_ray().shutdown()


def _require_listener(address: str) -> None:
    """Raises OSError where nothing listens; Ray itself would retry for a quarter of an hour."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def nodes_of_cluster() -> list[Mapping[str, float]]:
    """Resources of each node that is alive, in use or not."""
    nodes = load_ray().nodes()
    return [node["Resources"] for node in nodes if node["Alive"]]


def this_node() -> Any:  # noqa: ANN401 - a strategy of Ray's
    """The strategy of what is to run on the node of this process."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(load_ray().get_runtime_context().get_node_id(), soft=True)


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
