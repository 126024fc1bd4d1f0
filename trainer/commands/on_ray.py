"""Seeds that train on the nodes of a Ray cluster, which share the folder of the run.

An actor holds the cores or the GPU of a seed, and has it trained by a process beside it, which a
signal stops as on one machine. Where a node is lost, its seeds go on from their last checkpoint on
another one.
"""

import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from difficulty_service.base import apart
from difficulty_service.base.cluster import ActorPlan, ClusterOptions, device_of_actors, plan_actors
from difficulty_service.base.errors import DifficultyError, EngineError, Setting
from difficulty_service.base.ray_connection import (
    connected,
    first_line,
    last_line,
    load_ray,
    nodes_of_cluster,
)
from difficulty_service.cli.console import err, out
from trainer.commands import STOPPED, SeveralSeeds
from trainer.commands.places import Running, SeedToTrain, print_error, train_one

POLL_SECONDS = 0.5
"""Time for which an actor waits for the end of its process before it answers."""

START_SECONDS = 300.0
"""Time for which all seeds may wait for room on the cluster before the command ends."""

ATTEMPTS = 3
"""Number of nodes that a seed may lose before it counts as failed."""


@dataclass(frozen=True)
class Surroundings:
    """What every node must see as this machine does.

    Attributes:
        directory: Where relative paths of a recipe begin.
        token: A file in the folder of the runs.
    """

    directory: Path
    token: Path


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

    def _take(self, answer: "Answer") -> None:
        for console, lines in ((out, answer.output), (err, answer.errors)):
            if lines:
                console.print(lines, end="", markup=False, highlight=False, soft_wrap=True)
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
        err.print(f"{self._seed.label}: {lost}; another one goes on", markup=False)
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


@dataclass(frozen=True)
class Answer:
    """What a process wrote since the last answer, and its exit code once it has ended."""

    output: str
    errors: str
    code: int | None


class SeedActor:
    """Trains one seed in a process beside it, on some node."""

    def start(self, seed: SeedToTrain, device: str, surroundings: Surroundings) -> Answer:
        """Starts the process.

        Raises:
            EngineError: This node does not see the folder of the runs.
        """
        if not surroundings.token.exists() or not surroundings.directory.is_dir():
            folders = {surroundings.token.parent, surroundings.directory}
            raise EngineError(
                f"node {socket.gethostname()} does not share {' and '.join(map(str, folders))} "
                "with this machine",
                "run the command in a folder that all nodes have, and name such a folder by ",
                Setting("out"),
                parameter="out",
            )
        self._files = [Path(tempfile.mkstemp(prefix="seed-")[1]) for _ in range(2)]
        self._read = [0, 0]
        with apart.without_main():
            self._process = apart.start_process(
                _train_in, surroundings.directory, *self._files, seed, device
            )
        return Answer(f"{seed.label}: on {socket.gethostname()}\n", "", None)

    def poll(self) -> Answer:
        """Waits a moment for the end of the process."""
        self._process.join(POLL_SECONDS)
        code = self._process.exitcode
        output, errors = (self._new(number, is_last=code is not None) for number in range(2))
        return Answer(output, errors, code)

    def stop(self) -> None:
        """Has the process save and end."""
        if self._process.exitcode is None:
            os.kill(self._process.pid or 0, signal.SIGTERM)

    def _new(self, number: int, *, is_last: bool) -> str:
        """The whole lines that a file of output has got."""
        with self._files[number].open("rb") as file:
            file.seek(self._read[number])
            new = file.read()
        if is_last:
            self._files[number].unlink()
        else:
            new = new[: new.rfind(b"\n") + 1]
        self._read[number] += len(new)
        return new.decode(errors="replace")


def _train_in(directory: Path, output: Path, errors: Path, seed: SeedToTrain, device: str) -> None:
    # Another node may go on with the seed once the actor is gone, so this process must not.
    apart.signal_after_parent(signal.SIGKILL)
    os.chdir(directory)
    for stream, path in ((sys.stdout, output), (sys.stderr, errors)):
        stream.flush()
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream.fileno())
    train_one(seed, device)
