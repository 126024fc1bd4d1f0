"""What to ask a cluster for; known without the cluster's library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from difficulty_service.errors import EngineError

MOST_CPUS_BESIDE_A_GPU = 16


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster, and how much of it.

    Attributes:
        address: Of the cluster, as `ray.init` takes it; None for `RAY_ADDRESS`, or a Ray of its
            own on this machine where that is not set.
        min_actors: So many must find room, or nothing is begun.
        max_actors: So many are asked for; None for as many as fit. Those that find no room wait
            for the cluster to grow.
        cpus_per_actor: Cores that each reserves and decodes on; None for one without a GPU, and
            for a GPU's share of the cores with one.
    """

    address: str | None = None
    min_actors: int = 1
    max_actors: int | None = None
    cpus_per_actor: int | None = None


@dataclass(frozen=True)
class Share:
    """How much of the cluster: number of actors, and what each reserves."""

    min_actors: int
    max_actors: int
    cpus: int
    gpus: int


def plan(
    nodes: Sequence[Mapping[str, float]],
    device: torch.device,
    cluster: ClusterOptions,
    num_shards: int,
) -> Share:
    """Number and size of the actors.

    Args:
        nodes: What each node has in all, in use or not: `CPU`, `GPU`.
        device: Of the backbone.
        cluster: What is asked for.
        num_shards: More actors than shards would be idle.

    Raises:
        EngineError: The cluster is too small for them, which Ray would wait for without a word.
    """
    cpus, gpus = (int(sum(node.get(kind, 0) for node in nodes)) for kind in ("CPU", "GPU"))
    needs_gpu = device.type == "cuda"
    each = cluster.cpus_per_actor or _cpus_beside(nodes, needs_gpu)
    room = sum(_fitting(node, each, needs_gpu) for node in nodes)
    wanted = f"{each} CPU{'s' if each > 1 else ''}{' and a GPU' if needs_gpu else ''}"
    if room < cluster.min_actors:
        remedy = f"--ray-actors {room}" if room else "a smaller --workers"
        raise EngineError(
            f"{cluster.min_actors} actors of {wanted} each do not fit on the cluster, which has "
            f"{cpus} CPUs and {gpus} GPUs on {len(nodes)} nodes; use {remedy}, or more nodes"
        )
    most = room if cluster.max_actors is None else cluster.max_actors
    most = max(cluster.min_actors, min(most, num_shards))
    return Share(min(cluster.min_actors, most), most, each, int(needs_gpu))


def _cpus_beside(nodes: Sequence[Mapping[str, float]], needs_gpu: bool) -> int:  # noqa: FBT001
    """Cores for an actor: one, or the share of them that each GPU of a node has."""
    shares = [int(node.get("CPU", 0) // node["GPU"]) for node in nodes if node.get("GPU", 0) >= 1]
    return max(1, min(MOST_CPUS_BESIDE_A_GPU, *shares)) if needs_gpu and shares else 1


def _fitting(resources: Mapping[str, float], cpus: int, needs_gpu: bool) -> int:  # noqa: FBT001
    by_cpus = int(resources.get("CPU", 0)) // cpus
    return min(by_cpus, int(resources.get("GPU", 0))) if needs_gpu else by_cpus
