"""A pool of actors that extract shards: assignment, retries, and replacement of dead actors.

Independent of the library that runs the actors; the protocol `Actors` is what it needs of one.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from difficulty_service.base.cluster import ActorPlan
from difficulty_service.base.errors import DeviceError, DifficultyError, EngineError, Setting
from difficulty_service.extraction.engines.shard_extractor import (
    ProgressReporter,
    require_same_environment,
)
from difficulty_service.extraction.extracted_shard import ExtractedShard
from difficulty_service.extraction.shards import BatchCallback

SHARDS_PER_ACTOR = 4
"""Shards assigned to an actor at a time: it reads ahead into those that wait."""

MAX_ATTEMPTS = 3
"""Number of actors that may die on a shard, or while they start, before the run ends."""

START_SECONDS = 300.0
POLL_SECONDS = 0.5


class ActorDied(Exception):
    """An actor, its process or its node has died; the message is the library's reason."""


class Actors(Protocol):
    """Actors on a cluster; a request to one returns a reference to its answer."""

    def start(self) -> Any:  # noqa: ANN401 - a handle of the library's
        """Starts one more actor."""

    def place(self, actor: Any) -> Any:  # noqa: ANN401
        """Requests the node and the host of an actor; answered once it has found room."""

    def load(self, actor: Any) -> Any:  # noqa: ANN401
        """Has an actor load the backbone; the answer is `Loaded`."""

    def extract(self, actor: Any, shard: int) -> Any:  # noqa: ANN401
        """Has an actor extract a shard; the answer is an `ExtractedShard`."""

    def ready(self, references: Sequence[Any], timeout: float) -> Sequence[Any]:
        """At most one reference that has been answered, after at most `timeout` seconds."""

    def answer(self, reference: Any) -> Any:  # noqa: ANN401
        """The answer of an actor; raises what the actor raised, or ActorDied."""

    def counts(self) -> Mapping[int, tuple[int, int]]:
        """Images done and bad images, by shard; empty where they are not known."""

    def free_cpus(self) -> float:
        """Number of cores that are not in use."""

    def end(self, actor: Any) -> None:  # noqa: ANN401
        """Ends an actor, even one that is dead or still waits for room."""


@dataclass(eq=False)
class PoolWorker:
    """An actor as the driver sees it.

    Attributes:
        node: Id of the node; empty until the actor has found room.
        assigned: Shards assigned and not yet returned, in order, by the reference to the result.
    """

    handle: Any
    node: str = ""
    host: str = ""
    loaded: bool = False
    assigned: dict[Any, int] = field(default_factory=dict)


class ActorPool:
    """Actors, the shards assigned to them, and the shards that wait.

    Attributes:
        libraries: Library that runs the backbone of each actor, None for PyTorch.
    """

    def __init__(
        self,
        actors: Actors,
        plan: ActorPlan,
        images_of: Mapping[int, int],
        expected: Mapping[str, str],
    ) -> None:
        self._actors = actors
        self._plan = plan
        self._images_of = images_of
        self._waiting = deque(images_of)
        self._expected = expected
        self.libraries: set[str | None] = set()
        self._workers: list[PoolWorker] = []
        self._starting: dict[Any, PoolWorker] = {}
        self._attempts: Counter[int] = Counter()
        self._failed_on: dict[int, str] = {}
        self._failed_starts = 0
        self._last_answer = time.monotonic()
        for _ in range(plan.max_actors):
            self._start()

    def results(self, on_batch: BatchCallback) -> Iterator[tuple[int, ExtractedShard]]:
        """Each shard and its features in the order in which they arrive, until none is left."""
        progress = ProgressReporter(on_batch)
        self._await_room(progress)
        while self._waiting or self._assigned():
            self._assign()
            for ref in self._ready():
                if ref in self._starting:
                    self._started(ref)
                    continue
                shard, extracted = self._finished(ref)
                if extracted is not None:
                    yield shard, extracted
                    progress.finish(self._images_of[shard], len(extracted.bad_images))
            progress.update(self._counts())
            self._require_actors()

    def close(self) -> None:
        """Ends all actors, even those that still wait for room."""
        for worker in self._workers:
            self._actors.end(worker.handle)

    def _start(self) -> None:
        worker = PoolWorker(self._actors.start())
        self._workers.append(worker)
        self._starting[self._actors.place(worker.handle)] = worker

    def _await_room(self, progress: ProgressReporter) -> None:
        """Waits until the minimum number of actors has found room."""
        until = time.monotonic() + START_SECONDS
        while self._num_placed() < self._plan.min_actors:
            progress.update({})
            for ref in self._ready():
                self._started(ref)
            if time.monotonic() > until:
                raise EngineError(
                    f"{self._num_placed()} of {self._plan.min_actors} actors found room within "
                    f"{START_SECONDS:.0f} s, with {self._actors.free_cpus():.0f} CPUs of the "
                    "cluster free",
                    "wait for other work to end, or use a smaller ",
                    Setting("min_actors"),
                    parameter="min_actors",
                )

    def _num_placed(self) -> int:
        return sum(bool(worker.node) for worker in self._workers)

    def _assigned(self) -> list[Any]:
        return [ref for worker in self._workers for ref in worker.assigned]

    def _ready(self) -> Sequence[Any]:
        refs = [*self._starting, *self._assigned()]
        if not refs:
            time.sleep(POLL_SECONDS)
            return []
        ready = self._actors.ready(refs, POLL_SECONDS)
        if ready:
            self._last_answer = time.monotonic()
        return ready

    def _started(self, ref: Any) -> None:  # noqa: ANN401 - a reference
        """Handles an answer of a starting actor: it has found room, or loaded the backbone."""
        worker = self._starting.pop(ref)
        try:
            answer = self._actors.answer(ref)
        except DeviceError:
            raise
        except DifficultyError as error:
            raise EngineError(f"an actor cannot start {_where(worker)}: {error}") from None
        except ActorDied as error:
            self._failed_starts += 1
            if self._failed_starts >= MAX_ATTEMPTS:
                raise EngineError(
                    f"{MAX_ATTEMPTS} actors died before they had loaded the backbone, the last "
                    f"one {_where(worker)}: {error}",
                    "its node may lack memory",
                ) from None
            self._lose(worker)
            return
        if not worker.node:
            worker.node, worker.host = answer
            self._starting[self._actors.load(worker.handle)] = worker
            return
        require_same_environment(worker.host, answer.environment, self._expected)
        self.libraries.add(answer.library)
        worker.loaded = True
        self._failed_starts = 0

    def _assign(self) -> None:
        """Assigns a shard to every actor before any gets a second one."""
        for limit in range(1, SHARDS_PER_ACTOR + 1):
            for worker in self._workers:
                if not worker.loaded or len(worker.assigned) >= limit:
                    continue
                shard = self._choose(worker)
                if shard is not None:
                    worker.assigned[self._actors.extract(worker.handle, shard)] = shard

    def _choose(self, worker: PoolWorker) -> int | None:
        """The next shard that did not fail on the actor's node, unless there is no other node."""
        nodes = {other.node for other in self._workers if other.loaded}
        for shard in self._waiting:
            if self._failed_on.get(shard) != worker.node or nodes == {worker.node}:
                self._waiting.remove(shard)
                return shard
        return None

    def _finished(self, ref: Any) -> tuple[int, ExtractedShard | None]:  # noqa: ANN401 - a reference
        """A shard and its features; None where the actor died, with the shard back in the queue."""
        worker = next(worker for worker in self._workers if ref in worker.assigned)
        try:
            extracted: ExtractedShard = self._actors.answer(ref)
        except ActorDied as error:
            shard = next(iter(worker.assigned.values()))  # of the others it has only read some
            self._attempts[shard] += 1
            self._failed_on[shard] = worker.node
            if self._attempts[shard] >= MAX_ATTEMPTS:
                raise EngineError(
                    f"{MAX_ATTEMPTS} actors died on shard {shard}, the last one "
                    f"{_where(worker)}: {error}",
                    "one of its images may be at fault, or the node may lack memory",
                ) from None
            self._lose(worker)
            return shard, None
        return worker.assigned.pop(ref), extracted

    def _lose(self, worker: PoolWorker) -> None:
        """Puts the shards of a dead actor back into the queue and starts another actor."""
        self._workers.remove(worker)
        self._waiting.extendleft(reversed(worker.assigned.values()))
        self._actors.end(worker.handle)
        self._start()

    def _counts(self) -> dict[int, tuple[int, int]]:
        """Images done and bad images of the shards that are being extracted."""
        assigned = {shard for worker in self._workers for shard in worker.assigned.values()}
        counts = self._actors.counts()
        return {shard: counts[shard] for shard in assigned & counts.keys()}

    def _require_actors(self) -> None:
        """Raises EngineError when no actor has found room for START_SECONDS."""
        if self._assigned() or time.monotonic() - self._last_answer < START_SECONDS:
            return
        raise EngineError(
            f"no actor has found room for {START_SECONDS:.0f} s, with {len(self._waiting)} shards "
            "left",
            "the other shards are kept, and the same command resumes with the missing ones",
        )


def _where(worker: PoolWorker) -> str:
    return f"on {worker.host}" if worker.host else "before it found room"
