"""Runs shards on a Ray cluster: a pool of actors, each with the backbone loaded once.

An actor decodes and encodes a shard in one call and sends its features to the driver, which writes
them; so only one process writes, nodes need not share a file system for the results, and a shard
that was computed twice is written once. A shard whose actor died is retried by another actor, on
another node if there is one.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.base.cluster import ActorPlan, ClusterOptions, device_of_actors, plan_actors
from difficulty_service.base.errors import DifficultyError, EngineError
from difficulty_service.base.ray_connection import (
    connected,
    first_line,
    last_line,
    load_ray,
    nodes_of_cluster,
    this_node,
)
from difficulty_service.extraction.engines.actor_pool import ActorDied, ActorPool
from difficulty_service.extraction.engines.shard_extractor import (
    ProgressCounter,
    ShardExtractor,
    environment,
    name_libraries,
)
from difficulty_service.extraction.shard_writer import ShardWriter
from difficulty_service.extraction.shards import BatchCallback
from difficulty_service.extraction.task import ExtractionTask

ANNOUNCEMENTS = "announcements"
"""Requests to an actor that do not wait until those before them are answered."""


def choose_on_cluster(device: str, cluster: ClusterOptions) -> torch.device:
    """The device of each actor; of `auto` a GPU where the cluster has any."""
    if device == "cpu":  # needs no cluster
        return torch.device(device)
    with connected(cluster.address):
        return device_of_actors(device, nodes_of_cluster())


@dataclass(frozen=True)
class RayEngine:
    """Extracts shards on a Ray cluster; see `Engine`."""

    cluster: ClusterOptions

    def run_shards(
        self,
        task: ExtractionTask,
        backbone: Backbone,
        shards: Sequence[int],
        writer: ShardWriter,
        on_batch: BatchCallback,
    ) -> str | None:
        """Writes each shard as soon as an actor has sent it."""
        images_of = {shard: len(task.dataset.shard_positions(shard)) for shard in shards}
        if not images_of:
            return None
        with connected(self.cluster.address):
            workers = task.options.workers
            plan = plan_actors(
                nodes_of_cluster(), task.network.device, self.cluster, len(shards), workers
            )
            task = replace(task, options=replace(task.options, workers=plan.cpus))
            actors = RayActors(task, plan)
            expected = environment(task, backbone.weights_sha256)
            pool = ActorPool(actors, plan, images_of, expected)
            try:
                for shard, extracted in pool.results(on_batch):
                    writer.write(shard, extracted)
            finally:
                pool.close()
                actors.close()
        return name_libraries(pool.libraries)


class ShardActor(ShardExtractor):
    """A shard extractor that runs in a process of some node."""

    def place(self) -> tuple[str, str]:
        """Id of the node and name of the host."""
        return load_ray().get_runtime_context().get_node_id(), socket.gethostname()


class RayActors:
    """Actors of Ray, as the pool needs them."""

    def __init__(self, task: ExtractionTask, plan: ActorPlan) -> None:
        self._ray = load_ray()
        self._task, self._number = _put(task), plan.max_actors
        self._remote = self._ray.remote(
            num_cpus=plan.cpus, num_gpus=plan.gpus, concurrency_groups={ANNOUNCEMENTS: 1}
        )(ShardActor)
        # On the node of the driver, so that they end together; it needs no core of its own.
        counter: Any = self._ray.remote(num_cpus=0)(ProgressCounter)
        self._counter = counter.options(scheduling_strategy=this_node()).remote()

    def start(self) -> Any:  # noqa: ANN401 - as in the protocol, here and below
        """Starts one more actor."""
        return self._remote.remote()

    def place(self, actor: Any) -> Any:  # noqa: ANN401
        """Requests the node and the host of an actor."""
        return actor.place.remote()

    def load(self, actor: Any) -> Any:  # noqa: ANN401
        """Has an actor load the backbone."""
        return actor.load.remote(self._task, self._number)

    def extract(self, actor: Any, shard: int) -> Any:  # noqa: ANN401
        """Has an actor extract a shard, of which it hears while it works on the ones before."""
        actor.announce.options(concurrency_group=ANNOUNCEMENTS).remote(shard)
        return actor.extract.remote(shard, self._counter)

    def ready(self, references: Sequence[Any], timeout: float) -> Sequence[Any]:
        """At most one reference, so that no more than one result is held in this process."""
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=timeout)
        return list(ready)

    def answer(self, reference: Any) -> Any:  # noqa: ANN401
        """The answer of an actor; an error of this package is raised as it is."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DifficultyError):
                raise error.cause from None
            raise EngineError(f"an actor failed: {last_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            raise ActorDied(first_line(error)) from error

    def counts(self) -> Mapping[int, tuple[int, int]]:
        """Images done and bad images, by shard."""
        try:
            counts: dict[int, tuple[int, int]] = self._ray.get(
                self._counter.counts.remote(), timeout=5
            )
        except self._ray.exceptions.RayError:
            return {}  # only the progress bar stands still
        return counts

    def free_cpus(self) -> float:
        """Number of cores that are not in use."""
        return float(self._ray.available_resources().get("CPU", 0))

    def end(self, actor: Any) -> None:  # noqa: ANN401
        """Ends an actor."""
        self._ray.kill(actor)

    def close(self) -> None:
        """Ends the counter."""
        self._ray.kill(self._counter)


def _put(task: ExtractionTask) -> Any:  # noqa: ANN401 - a reference
    """Puts a task into Ray's object store, from which every node fetches it once."""
    try:
        return load_ray().put(task)
    except TypeError as error:
        raise EngineError(
            f"the dataset cannot be sent to other nodes: {first_line(error)}"
        ) from error
