"""How much of a cluster to use; knows nothing of the cluster's library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from difficulty_service.base.errors import EngineError, Setting

MAX_CPUS_BESIDE_A_GPU = 16


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster to use, and how many actors.

    Attributes:
        address: Address of the cluster, as `ray.init` takes it; None for `RAY_ADDRESS`, or for a
            cluster on this machine alone where that is not set.
        min_actors: Number of actors that must find room before anything is extracted.
        max_actors: Number of actors to start; None for as many as fit. Those that find no room
            wait for the cluster to grow.
    """

    address: str | None = None
    min_actors: int = 1
    max_actors: int | None = None


@dataclass(frozen=True)
class ActorPlan:
    """Number of actors, and what each of them reserves."""

    min_actors: int
    max_actors: int
    cpus: int
    gpus: int


def device_of_actors(device: str, nodes: Sequence[Mapping[str, float]]) -> torch.device:
    """The device of each actor; `auto` is a GPU where the cluster has any.

    Raises:
        EngineError: A GPU is asked for, and no node has one.
    """
    has_gpus = any(node.get("GPU", 0) >= 1 for node in nodes)
    if device == "cpu" or (device == "auto" and not has_gpus):
        return torch.device("cpu")
    if not has_gpus:
        raise EngineError(
            f"no node of the cluster has a GPU for the device {device!r}",
            "use ",
            Setting("device", "cpu"),
            parameter="device",
        )
    return torch.device("cuda")


def plan_actors(
    nodes: Sequence[Mapping[str, float]],
    device: torch.device,
    cluster: ClusterOptions,
    num_shards: int,
    workers: int | None = None,
) -> ActorPlan:
    """Number and size of the actors.

    By default an actor has one core, and with a GPU that GPU's share of its node's cores. Ray would
    wait for room without a message where the cluster is too small.
    """
    cpus, gpus = (int(sum(node.get(kind, 0) for node in nodes)) for kind in ("CPU", "GPU"))
    needs_gpu = device.type == "cuda"
    each = workers or _cpus_beside(nodes, needs_gpu)
    room = sum(_fitting(node, each, needs_gpu) for node in nodes)
    if room < cluster.min_actors:
        size = f"{each} CPU{'s' if each > 1 else ''}{' and a GPU' if needs_gpu else ''}"
        remedy = (Setting("min_actors", room),) if room else ("a smaller ", Setting("workers"))
        raise EngineError(
            f"{cluster.min_actors} actors of {size} each do not fit on the cluster, which has "
            f"{cpus} CPUs and {gpus} GPUs on {len(nodes)} nodes",
            "use ",
            *remedy,
            ", or more nodes",
            parameter="min_actors" if room else "workers",
        )
    max_actors = room if cluster.max_actors is None else cluster.max_actors
    max_actors = max(cluster.min_actors, min(max_actors, num_shards))
    return ActorPlan(min(cluster.min_actors, max_actors), max_actors, each, int(needs_gpu))


def _cpus_beside(nodes: Sequence[Mapping[str, float]], needs_gpu: bool) -> int:  # noqa: FBT001
    """Cores for an actor: one, or the cores of a node divided by its GPUs."""
    shares = [int(node.get("CPU", 0) // node["GPU"]) for node in nodes if node.get("GPU", 0) >= 1]
    return max(1, min(MAX_CPUS_BESIDE_A_GPU, *shares)) if needs_gpu and shares else 1


def _fitting(resources: Mapping[str, float], cpus: int, needs_gpu: bool) -> int:  # noqa: FBT001
    by_cpus = int(resources.get("CPU", 0)) // cpus
    return min(by_cpus, int(resources.get("GPU", 0))) if needs_gpu else by_cpus
