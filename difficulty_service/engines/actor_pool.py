"""Shards on actors that may come, go and die: who gets which, and what happens then.

Knows nothing of the library that runs the actors; `Actors` is what it needs of one.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from difficulty_service.engines.cluster import Share
from difficulty_service.engines.recipe import require_same
from difficulty_service.engines.shard_progress import ShownProgress
from difficulty_service.errors import DifficultyError, EngineError
from difficulty_service.extraction.shards import Extracted, Progress

SHARDS_AHEAD = 2
"""Shards given to an actor at a time: the next lies ready when one is done, and no more is held."""

MOST_ATTEMPTS = 3
"""After so many actors died on a shard, it is at fault."""

START_SECONDS = 300.0
POLL_SECONDS = 0.5


class ActorDied(Exception):
    """An actor, its process or its node is gone; the message says what is known of it."""


class Actors(Protocol):
    """Actors on a cluster; what they are asked comes back as a reference to wait for."""

    def start(self) -> Any:  # noqa: ANN401 - a handle of the library's
        """Asks for one more actor."""

    def place(self, actor: Any) -> Any:  # noqa: ANN401
        """Asks where it is: node and host, once it has found room."""

    def load(self, actor: Any) -> Any:  # noqa: ANN401
        """Has it load the backbone; answers what must be the same on every node."""

    def extract(self, actor: Any, shard: int) -> Any:  # noqa: ANN401
        """Has it extract a shard."""

    def ready(self, references: Sequence[Any], timeout: float) -> Sequence[Any]:
        """At most one reference whose answer is there, waiting for it for so many seconds."""

    def answer(self, reference: Any) -> Any:  # noqa: ANN401
        """What an actor answered; raises what it raised, or ActorDied."""

    def counts(self) -> Mapping[int, tuple[int, int]]:
        """Images done and bad, by shard; empty where nobody knows."""

    def free_cpus(self) -> float:
        """Cores that nobody uses."""

    def end(self, actor: Any) -> None:  # noqa: ANN401
        """Ends an actor, also one that is dead or still waits for room."""


@dataclass(eq=False)
class Worker:
    """An actor as the driver sees it.

    Attributes:
        handle: Of the actor.
        node: Where it runs; empty until it has found room.
        host: Name of the machine.
        loaded: Whether it has its backbone.
        given: Shards it was given and has not returned, in order, by the reference of the result.
    """

    handle: Any
    node: str = ""
    host: str = ""
    loaded: bool = False
    given: dict[Any, int] = field(default_factory=dict)


class Pool:
    """The actors, what they were given, and what is still to do.

    Args:
        actors: Where they come from.
        share: How many.
        waiting: Shards to do, and how many images each has.
        expected: What must be the same on every node.
    """

    def __init__(
        self,
        actors: Actors,
        share: Share,
        waiting: Mapping[int, int],
        expected: Mapping[str, str],
    ) -> None:
        self._actors = actors
        self._share = share
        self._num_images = waiting
        self._waiting = deque(waiting)
        self._expected = expected
        self._workers: list[Worker] = []
        self._starting: dict[Any, Worker] = {}
        self._attempts: Counter[int] = Counter()
        self._failed_on: dict[int, str] = {}
        self._starts_that_failed = 0
        self._last_sign = time.monotonic()
        for _ in range(share.max_actors):
            self._start()

    def results(self, progress: Progress) -> Iterator[tuple[int, Extracted]]:
        """Each shard and its features as they come, until none is left."""
        shown = ShownProgress(progress)
        self._await_room(shown)
        while self._waiting or self._given():
            self._feed()
            for ref in self._ready():
                if ref in self._starting:
                    self._started(ref)
                    continue
                shard, extracted = self._finished(ref)
                if extracted is not None:
                    yield shard, extracted
                    shown.finish(self._num_images[shard], len(extracted[1]))
            shown.under_way(self._counts())
            self._require_life()

    def close(self) -> None:
        """Ends all actors, also those that still wait for room."""
        for worker in self._workers:
            self._actors.end(worker.handle)

    def _start(self) -> None:
        worker = Worker(self._actors.start())
        self._workers.append(worker)
        self._starting[self._actors.place(worker.handle)] = worker

    def _await_room(self, shown: ShownProgress) -> None:
        """Waits until as many actors as must have found room have found it.

        Raises:
            EngineError: They have not within START_SECONDS.
        """
        until = time.monotonic() + START_SECONDS
        while self._num_placed() < self._share.min_actors:
            shown.under_way({})
            for ref in self._ready():
                self._started(ref)
            if time.monotonic() > until:
                raise EngineError(
                    f"{self._num_placed()} of {self._share.min_actors} actors found room within "
                    f"{START_SECONDS:.0f} s; {self._actors.free_cpus():.0f} CPUs of the cluster "
                    "are free: wait for other work to end, or ask for fewer with --ray-actors"
                )

    def _num_placed(self) -> int:
        return sum(bool(worker.node) for worker in self._workers)

    def _given(self) -> list[Any]:
        return [ref for worker in self._workers for ref in worker.given]

    def _ready(self) -> Sequence[Any]:
        refs = [*self._starting, *self._given()]
        if not refs:
            time.sleep(POLL_SECONDS)
            return []
        ready = self._actors.ready(refs, POLL_SECONDS)
        if ready:
            self._last_sign = time.monotonic()
        return ready

    def _started(self, ref: Any) -> None:  # noqa: ANN401 - a reference
        """Takes an actor one step on: it has found room, or it has its backbone."""
        worker = self._starting.pop(ref)
        try:
            answer = self._actors.answer(ref)
        except DifficultyError as error:
            raise EngineError(f"an actor cannot start {_where(worker)}: {error}") from None
        except ActorDied as error:
            self._starts_that_failed += 1
            if self._starts_that_failed >= MOST_ATTEMPTS:
                raise EngineError(
                    f"{MOST_ATTEMPTS} actors died before they had loaded the backbone, the last "
                    f"one {_where(worker)}: {error}; its node may lack memory"
                ) from None
            self._lose(worker)
            return
        if not worker.node:
            worker.node, worker.host = answer
            self._starting[self._actors.load(worker.handle)] = worker
            return
        require_same(worker.host, answer, self._expected)
        worker.loaded = True
        self._starts_that_failed = 0

    def _feed(self) -> None:
        """Gives every actor a shard before any gets a second."""
        for ahead in range(1, SHARDS_AHEAD + 1):
            for worker in self._workers:
                if not worker.loaded or len(worker.given) >= ahead:
                    continue
                shard = self._choose(worker)
                if shard is not None:
                    worker.given[self._actors.extract(worker.handle, shard)] = shard

    def _choose(self, worker: Worker) -> int | None:
        """The next shard that did not fail on the actor's node, if other nodes are there."""
        nodes = {other.node for other in self._workers if other.loaded}
        for shard in self._waiting:
            if self._failed_on.get(shard) != worker.node or nodes == {worker.node}:
                self._waiting.remove(shard)
                return shard
        return None

    def _finished(self, ref: Any) -> tuple[int, Extracted | None]:  # noqa: ANN401 - a reference
        """A shard and its features; None where its actor died, after the shard is put back."""
        worker = next(worker for worker in self._workers if ref in worker.given)
        try:
            extracted: Extracted = self._actors.answer(ref)
        except ActorDied as error:
            shard = next(iter(worker.given.values()))  # the one it worked on; others only waited
            self._attempts[shard] += 1
            self._failed_on[shard] = worker.node
            if self._attempts[shard] >= MOST_ATTEMPTS:
                raise EngineError(
                    f"shard {shard} brought down {MOST_ATTEMPTS} actors, the last one "
                    f"{_where(worker)}: {error}; an image of it may be at fault, or "
                    "the node lacks memory"
                ) from None
            self._lose(worker)
            return shard, None
        return worker.given.pop(ref), extracted

    def _lose(self, worker: Worker) -> None:
        """Puts back what an actor was given, and asks for another actor."""
        self._workers.remove(worker)
        self._waiting.extendleft(reversed(worker.given.values()))
        self._actors.end(worker.handle)
        self._start()

    def _counts(self) -> dict[int, tuple[int, int]]:
        """Images done and bad of the shards under way."""
        given = {shard for worker in self._workers for shard in worker.given.values()}
        counts = self._actors.counts()
        return {shard: counts[shard] for shard in given & counts.keys()}

    def _require_life(self) -> None:
        if self._given() or time.monotonic() - self._last_sign < START_SECONDS:
            return
        raise EngineError(
            f"no actor has found room for {START_SECONDS:.0f} s, with {len(self._waiting)} shards "
            "left; what is done is kept, and the same command goes on"
        )


def _where(worker: Worker) -> str:
    return f"on {worker.host}" if worker.host else "before it found room"
