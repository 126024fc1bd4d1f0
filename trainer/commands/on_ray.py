"""Seeds that train on the nodes of a Ray cluster, which share the folder of the run.

An actor holds the cores or the GPU of a seed, and has it trained by a process beside it, which a
signal stops as on one machine. Where a node is lost, its seeds go on from their last checkpoint on
another one.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from difficulty_service.base.cluster import ActorPlan, ClusterOptions, device_of_actors, plan_actors
from difficulty_service.base.errors import DifficultyError, EngineError
from difficulty_service.base.ray_connection import (
    connected,
    first_line,
    last_line,
    load_ray,
    nodes_of_cluster,
)
from difficulty_service.cli.console import err, out
from trainer.commands import STOPPED, SeveralSeeds
from trainer.commands.places import Running, SeedToTrain, print_error
from trainer.commands.seed_actor import Answer, SeedActor, Surroundings

START_SECONDS = 300.0
"""Time for which all seeds may wait for room on the cluster before the command ends."""

ATTEMPTS = 3
"""Number of nodes that a seed may lose before it counts as failed."""


@dataclass(frozen=True)
class RayPlaces:
    """Places on a cluster; see `Places`."""

    plan: ActorPlan
    surroundings: Surroundings

    @property
    def count(self) -> int:
        """Number of seeds that train at once."""
        return self.plan.max_actors

    def start(self, seed: SeedToTrain, place: int) -> "RunningOnRay":
        """Has a seed trained where there is room, which may be later."""
        del place
        return RunningOnRay(seed, self.plan, self.surroundings)

    def wait(self, running: Sequence[Running], seconds: float) -> None:
        """Returns when a node has answered, or after some seconds.

        Raises:
            EngineError: No seed is training, and none has found room for START_SECONDS.
        """
        on_ray = [each for each in running if isinstance(each, RunningOnRay)]
        load_ray().wait([each.asked for each in on_ray], timeout=seconds)
        if on_ray and all(each.waits_for > START_SECONDS for each in on_ray):
            size = "a GPU" if self.plan.gpus else f"{self.plan.cpus} free CPUs"
            raise EngineError(
                f"no node of the cluster had {size} for a seed within {START_SECONDS:.0f} s",
                "wait for other work on the cluster to end",
            )


@contextmanager
def places_on_ray(several: SeveralSeeds, num_seeds: int, folder: Path) -> Iterator[RayPlaces]:
    """Connects to a cluster and divides it.

    By default a seed has one core, or a GPU with its share of its node's cores; with a number of
    jobs its share of the cluster's cores.

    Args:
        several: How many of the seeds, on which device of which cluster.
        num_seeds: Number of seeds to train.
        folder: Folder that holds the runs, which all nodes must share.

    Raises:
        EngineError: No cluster answers, or it has no room for one seed.
    """
    jobs = several.jobs
    with connected(several.ray_address):
        nodes = nodes_of_cluster()
        kind = device_of_actors(several.device, nodes)
        cpus = None
        if jobs is not None and kind.type == "cpu":
            least = min(int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1)
            cpus = max(1, least // -(-jobs // len(nodes)))
        room = ClusterOptions(several.ray_address, max_actors=jobs)
        plan = plan_actors(nodes, kind, room, num_seeds, cpus)
        folder.mkdir(parents=True, exist_ok=True)
        token = folder.resolve() / f".shared-{uuid.uuid4().hex}"
        token.touch()
        try:
            yield RayPlaces(plan, Surroundings(Path.cwd(), token))
        finally:
            token.unlink(missing_ok=True)


class RunningOnRay:
    """A seed that a node trains, or will train; see `Running`."""

    def __init__(self, seed: SeedToTrain, plan: ActorPlan, surroundings: Surroundings) -> None:
        self._plan, self._surroundings = plan, surroundings
        self._attempts = 0
        self._code: int | None = None
        self._is_stopped = False
        self._begin(replace(seed, folder=seed.folder.resolve()))

    @property
    def waits_for(self) -> float:
        """Seconds for which it has waited for room; 0 once a node trains it."""
        return 0.0 if self._is_placed else time.monotonic() - self._began

    def _begin(self, seed: SeedToTrain) -> None:
        remote = load_ray().remote(num_cpus=self._plan.cpus, num_gpus=self._plan.gpus)(SeedActor)
        self._seed, self._is_placed, self._began = seed, False, time.monotonic()
        self._attempts += 1
        self._actor = remote.remote()
        device = "cuda" if self._plan.gpus else "cpu"
        self.asked: Any = self._actor.start.remote(seed, device, self._surroundings)

    def poll(self) -> int | None:
        """The exit code of its process; None until it has ended. Prints what the process wrote."""
        ray = load_ray()
        if self._code is None and ray.wait([self.asked], timeout=0)[0]:
            try:
                self._take(ray.get(self.asked))
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                if not isinstance(cause, DifficultyError):
                    raise EngineError(f"a node failed: {last_line(error)}") from error
                self._end(print_error(self._seed, cause))
            except ray.exceptions.RayError as error:
                self._lose(error)
        return self._code

    def _take(self, answer: Answer) -> None:
        for console, lines in ((out, answer.output), (err, answer.errors)):
            if lines:
                console.print(lines, end="")
        self._is_placed = True
        if answer.code is None:
            self.asked = self._actor.poll.remote()
        else:
            self._end(answer.code)

    def _lose(self, error: Exception) -> None:
        if self._is_stopped:
            self._end(STOPPED)
            return
        lost = EngineError(f"its node was lost ({first_line(error)})")
        if self._attempts == ATTEMPTS:
            self._end(print_error(self._seed, lost))
            return
        err.print(f"{self._seed.label}: {lost}; another one goes on")
        self._begin(replace(self._seed, resume=True))

    def _end(self, code: int) -> None:
        self._code = code
        load_ray().kill(self._actor)

    def stop(self) -> None:
        """Has the process save and end, or keeps it from beginning."""
        if self._code is not None:
            return
        self._is_stopped = True
        if self._is_placed:
            self._actor.stop.remote()
        else:
            self._end(STOPPED)
