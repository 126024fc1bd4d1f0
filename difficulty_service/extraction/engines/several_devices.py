"""Runs shards on several devices of this machine, each in a process with its share of the cores.

Only this process writes, as on one device and on a cluster, so the features are the same bytes. A
shard whose process died is retried by a new one.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import torch

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.base.apart import Child, without_main
from difficulty_service.base.cluster import ActorPlan
from difficulty_service.base.devices import failure_of_gpu
from difficulty_service.base.errors import DifficultyError, EngineError
from difficulty_service.base.ray_connection import first_line
from difficulty_service.base.threads import num_workers
from difficulty_service.extraction.engines.actor_pool import ActorDied, ActorPool
from difficulty_service.extraction.engines.shard_extractor import (
    Loaded,
    ShardExtractor,
    environment,
    name_libraries,
)
from difficulty_service.extraction.shard_writer import ShardWriter
from difficulty_service.extraction.shards import BatchCallback
from difficulty_service.extraction.task import ExtractionTask


@dataclass(frozen=True)
class SeveralDevices:
    """Extracts shards on several devices; see `Engine`."""

    devices: Sequence[torch.device]

    def run_shards(
        self,
        task: ExtractionTask,
        backbone: Backbone,
        shards: Sequence[int],
        writer: ShardWriter,
        on_batch: BatchCallback,
    ) -> str | None:
        """Writes each shard as soon as a process has sent it."""
        images_of = {shard: len(task.dataset.shard_positions(shard)) for shard in shards}
        if not images_of:
            return None
        devices = self.devices[: len(images_of)]
        cores = max(1, (task.options.workers or num_workers()) // len(devices))
        expected = environment(task, backbone.weights_sha256)
        # The processes cannot tell a watch of this one what they work on.
        task = replace(task, options=replace(task.options, workers=cores), watch=None)
        plan = ActorPlan(1, len(devices), cores, 1)
        pool = ActorPool(DeviceProcesses(task, devices), plan, images_of, expected)
        try:
            for shard, extracted in pool.results(on_batch):
                writer.write(shard, extracted)
        finally:
            pool.close()
        return name_libraries(pool.libraries)


@dataclass(eq=False)
class Request:
    """What a process was asked for.

    Attributes:
        answer: Its answer, once that is there.
        error: The error that it raised in place of an answer.
    """

    process: "DeviceProcess"
    answer: Any = None
    error: Exception | None = None


@dataclass(eq=False)
class DeviceProcess:
    """A process that extracts on a device, and what it was asked for and has not answered."""

    device: torch.device
    child: Child
    asked: deque[Request] = field(default_factory=deque)

    @property
    def connection(self) -> Connection:
        """The connection to the process."""
        return self.child.connections[0]

    def ask(self, method: str, *arguments: object) -> Request:
        """Asks the process for something."""
        request = Request(self)
        self.asked.append(request)
        with suppress(OSError):  # it has died, which is noticed when its answer is read
            self.connection.send((method, arguments))
        return request


class DeviceProcesses:
    """Processes of this machine, as the pool needs its actors; see `Actors`."""

    def __init__(self, task: ExtractionTask, devices: Sequence[torch.device]) -> None:
        self._task = task
        self._number, self._free = len(devices), deque(devices)
        self._counts: dict[int, tuple[int, int]] = {}

    def start(self) -> DeviceProcess:
        """Starts a process on a device that has none."""
        device = self._free.popleft()
        with without_main():
            return DeviceProcess(device, Child(_serve, device))

    def place(self, actor: DeviceProcess) -> Request:
        """Requests the device of a process, as the node and the host."""
        return actor.ask("place")

    def load(self, actor: DeviceProcess) -> Request:
        """Has a process load the backbone on its device."""
        network = replace(self._task.network, device=actor.device)
        try:
            return actor.ask("load", replace(self._task, network=network), self._number)
        except (TypeError, AttributeError) as error:  # of pickle
            raise EngineError(
                f"the dataset cannot be sent to other processes: {first_line(error)}"
            ) from error

    def extract(self, actor: DeviceProcess, shard: int) -> Request:
        """Has a process extract a shard."""
        return actor.ask("extract", shard)

    def ready(self, references: Sequence[Request], timeout: float) -> Sequence[Request]:
        """At most one request that is answered, so that few results are held in this process."""
        processes = {request.process.connection: request.process for request in references}
        for connection in wait(list(processes), timeout):
            request = self._receive(processes[connection])  # type: ignore[index]
            if request is not None:
                return [request]
        return []

    def _receive(self, process: DeviceProcess) -> Request | None:
        """The request that a process has answered; None where it has told its progress."""
        try:
            kind, value = process.connection.recv()
        except (EOFError, OSError):
            process.child.finish()
            kind, value = "error", ActorDied(f"it was ended {process.child.ending}")
        if kind == "progress":
            shard, done, bad = value
            self._counts[shard] = done, bad
            return None
        request = process.asked.popleft()
        if kind == "error":
            request.error = value
        else:
            request.answer = value
        return request

    def answer(self, reference: Request) -> Any:  # noqa: ANN401 - as in the protocol
        """The answer to a request that is ready."""
        if reference.error is not None:
            raise reference.error
        return reference.answer

    def counts(self) -> Mapping[int, tuple[int, int]]:
        """Images done and bad images, by shard."""
        return self._counts

    def free_cpus(self) -> float:
        """Number of cores that are not in use; processes need not wait for any."""
        return float(num_workers())

    def end(self, actor: DeviceProcess) -> None:
        """Ends a process, whose device is free then."""
        actor.child.kill()
        self._free.append(actor.device)


def _serve(connections: Sequence[Connection], device: torch.device) -> None:
    """Answers what is asked for, in order, in a process of its own."""
    (connection,) = connections
    extractor = ShardExtractor()
    requests: SimpleQueue[tuple[str, tuple[Any, ...]] | None] = SimpleQueue()

    def receive() -> None:
        """Takes requests while one is being answered, to announce the shards of the next ones."""
        try:
            while True:
                name, arguments = connection.recv()
                if name == "extract":
                    extractor.announce(*arguments)
                requests.put((name, arguments))
        except (EOFError, OSError):  # the parent has ended, or wants this to end
            pass
        finally:
            requests.put(None)

    def report(shard: int, done: int, bad: int) -> None:
        connection.send(("progress", (shard, done, bad)))

    def load(task: ExtractionTask, actors: int) -> Loaded:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return extractor.load(task, actors)

    counter = SimpleNamespace(report=SimpleNamespace(remote=report))
    methods: dict[str, Callable[..., object]] = {
        "place": lambda: (str(device), str(device)),
        "load": load,
        "extract": lambda shard: extractor.extract(shard, counter),
    }
    threading.Thread(target=receive, name="requests", daemon=True).start()
    with suppress(OSError):
        while (request := requests.get()) is not None:
            name, arguments = request
            reply: tuple[str, object]
            try:
                reply = "answer", methods[name](*arguments)
            except DifficultyError as error:
                reply = "error", error
            except Exception as error:  # noqa: BLE001 - every error goes to the parent
                unforeseen = EngineError(f"a process failed: {type(error).__name__}: {error}")
                reply = "error", failure_of_gpu(str(device)) or unforeseen
            connection.send(reply)
