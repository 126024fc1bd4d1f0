"""Runs shards on a Ray cluster: a pool of actors, each with the backbone loaded once.

An actor decodes and encodes a shard in one call and sends its features here, where they are
written; so one process alone writes, nodes need not share a file system for the results, and a
shard that was computed twice is written once. A shard whose actor died goes to another one, on
another node where there is one.

The only module that imports ray.
"""

import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from difficulty_service.backbones.backbone import best_precision
from difficulty_service.engines.actor_pool import ActorDied, Pool
from difficulty_service.engines.cluster import ClusterOptions, Share, plan
from difficulty_service.engines.recipe import Recipe, ShardExtractor, identity
from difficulty_service.engines.shard_progress import ProgressCounter
from difficulty_service.errors import DifficultyError, EngineError, MissingPackage
from difficulty_service.extraction.shards import Progress
from difficulty_service.feature_store.store import FeatureStore

KNOCK_SECONDS = 10.0


@cache
def load_ray() -> Any:  # noqa: ANN401 - a module that is nearly untyped
    """The package, imported when a cluster is asked for: that takes seconds.

    Raises:
        MissingPackage: It is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Actors without a GPU see none; a future version of Ray does so unasked, this one warns.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingPackage(
            "the engine ray needs the package ray: pip install 'difficulty-service[ray]'"
        ) from error
    return ray


@contextmanager
def connected(options: ClusterOptions) -> Iterator[None]:
    """Inside, this process is the driver of a cluster; one that is connected already stays so.

    Raises:
        EngineError: No cluster answers at the address.
    """
    if load_ray().is_initialized():
        yield
        return
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    try:
        _knock(address)
        load_ray().init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"no Ray cluster answers at {address!r} ({_first_line(error)}); start one with "
            "`ray start --head`, or leave --ray-address out for this machine alone"
        ) from None
    try:
        yield
    finally:
        load_ray().shutdown()


def _knock(address: str) -> None:
    """Raises OSError where nothing listens; Ray itself would try for a quarter of an hour."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def choose_on_cluster(device: str, cluster: ClusterOptions) -> tuple[torch.device, torch.dtype]:
    """The device of each actor, and the precision that suits it; asks a node with a GPU.

    Args:
        device: As on the command line; auto is a GPU where the cluster has any.
        cluster: Where to look.

    Raises:
        EngineError: A GPU is asked for, and there is none; or the cluster does not answer.
    """
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    if device == "cpu":
        return cpu, best_precision(cpu)
    with connected(cluster):
        has_gpus = any(node.get("GPU", 0) >= 1 for node in _nodes())
        if device == "auto" and not has_gpus:
            return cpu, best_precision(cpu)
        if not has_gpus:
            raise EngineError(f"--device {device}, but no node of the cluster has a GPU")
        ray = load_ray()
        precision: torch.dtype = ray.get(ray.remote(num_gpus=1)(best_precision).remote(gpu))
        return gpu, precision


def extract_shards(
    recipe: Recipe,
    shards: Iterable[int],
    weights_sha256: str,
    store: FeatureStore,
    cluster: ClusterOptions,
    progress: Progress,
) -> None:
    """Extracts shards on the cluster and writes each to the store as soon as it is here.

    Args:
        recipe: What to do with each.
        shards: Which.
        weights_sha256: Of the backbone that the store describes; nodes must have the same.
        store: Written by this process alone.
        cluster: Which cluster, and how much of it.
        progress: Told of images under way as well; takes back those of a shard that was lost.

    Raises:
        EngineError: The cluster has no room, its nodes differ, or actors keep dying.
        DifficultyError: As `extract_shard`.
    """
    waiting = {shard: len(recipe.dataset.shard_positions(shard)) for shard in shards}
    if not waiting:
        return
    with connected(cluster):
        share = plan(_nodes(), recipe.network.device, cluster, len(waiting))
        recipe = replace(recipe, options=replace(recipe.options, workers=share.cpus))
        actors = RayActors(recipe, share)
        pool = Pool(actors, share, waiting, identity(recipe, weights_sha256))
        try:
            for shard, (part, bad_images) in pool.results(progress):
                store.write_part(shard, part, bad_images)
        finally:
            pool.close()
            actors.close()


def _nodes() -> list[Mapping[str, float]]:
    """What each node that is alive has in all, in use or not."""
    nodes = load_ray().nodes()
    return [node["Resources"] for node in nodes if node["Alive"]]


class ShardActor(ShardExtractor):
    """Runs in a process of some node."""

    def place(self) -> tuple[str, str]:
        """Node and host, as soon as the actor has found room."""
        return load_ray().get_runtime_context().get_node_id(), socket.gethostname()


class RayActors:
    """Actors of Ray, as the pool needs them.

    Args:
        recipe: What they do.
        share: What each of them reserves.

    Raises:
        EngineError: The dataset holds what cannot travel, such as an open connection.
    """

    def __init__(self, recipe: Recipe, share: Share) -> None:
        self._ray = load_ray()
        self._recipe = _shipped(recipe)
        self._remote = self._ray.remote(num_cpus=share.cpus, num_gpus=share.gpus)(ShardActor)
        # With this process it lives and dies, and it waits for no core.
        counter: Any = self._ray.remote(num_cpus=0)(ProgressCounter)
        self._counter = counter.options(scheduling_strategy=_this_node()).remote()

    def start(self) -> Any:  # noqa: ANN401 - as in the protocol, here and below
        """Asks for one more actor."""
        return self._remote.remote()

    def place(self, actor: Any) -> Any:  # noqa: ANN401
        """Asks where it is."""
        return actor.place.remote()

    def load(self, actor: Any) -> Any:  # noqa: ANN401
        """Has it load the backbone."""
        return actor.load.remote(self._recipe)

    def extract(self, actor: Any, shard: int) -> Any:  # noqa: ANN401
        """Has it extract a shard."""
        return actor.extract.remote(shard, self._counter)

    def ready(self, references: Sequence[Any], timeout: float) -> Sequence[Any]:
        """At most one, so that no more than one result is held here."""
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=timeout)
        return list(ready)

    def answer(self, reference: Any) -> Any:  # noqa: ANN401
        """What an actor answered; an error of this package comes back as itself."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DifficultyError):
                raise error.cause from None
            raise EngineError(f"an actor failed: {_last_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            raise ActorDied(_first_line(error)) from error

    def counts(self) -> Mapping[int, tuple[int, int]]:
        """Images done and bad, by shard."""
        try:
            counts: dict[int, tuple[int, int]] = self._ray.get(
                self._counter.counts.remote(), timeout=5
            )
        except self._ray.exceptions.RayError:
            return {}  # only the bar stands still
        return counts

    def free_cpus(self) -> float:
        """Cores that nobody uses."""
        return float(self._ray.available_resources().get("CPU", 0))

    def end(self, actor: Any) -> None:  # noqa: ANN401
        """Ends an actor."""
        self._ray.kill(actor)

    def close(self) -> None:
        """Ends the counter."""
        self._ray.kill(self._counter)


def _shipped(recipe: Recipe) -> Any:  # noqa: ANN401 - a reference
    """Puts the recipe where every node fetches it from, once each.

    Raises:
        EngineError: The dataset holds what cannot travel, such as an open connection.
    """
    try:
        return load_ray().put(recipe)
    except TypeError as error:
        raise EngineError(
            f"the dataset cannot be sent to other nodes: {_first_line(error)}"
        ) from error


def _this_node() -> Any:  # noqa: ANN401 - a strategy of Ray's
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(load_ray().get_runtime_context().get_node_id(), soft=True)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _last_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2] or type(error).__name__
