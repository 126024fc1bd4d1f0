"""Extracts shards in the processes of a cluster, whose nodes must have the same environment."""

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.frozen_network import runtime_of
from difficulty_service.base.errors import EngineError
from difficulty_service.base.process_setup import keep_freed_memory
from difficulty_service.base.wording import differences
from difficulty_service.extraction.decoding_processes import KeptProcesses
from difficulty_service.extraction.extracted_shard import ExtractedShard
from difficulty_service.extraction.policy import settle_runtime
from difficulty_service.extraction.shards import BatchCallback, extract_shards, ignore_batch
from difficulty_service.extraction.task import ExtractionTask

REPORT_SECONDS = 0.5


def environment(task: ExtractionTask, weights_sha256: str) -> dict[str, str]:
    """Weights and library versions on which the features depend."""
    return {
        "weights": weights_sha256,
        "decoder": task.options.decoder,
        "difficulty-service": version("difficulty-service"),
        "torch": torch.__version__,
    }


def require_same_environment(
    host: str, reported: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    """Refuses a node whose features would differ from those of the other nodes."""
    different = differences(reported, expected, names=(f"on {host}", "on the driver"))
    if different:
        raise EngineError(
            f"the node {host} would extract other features than the driver "
            f"({'; '.join(different)})",
            "install the same weights and versions on every node",
        )


@dataclass(frozen=True)
class Loaded:
    """What an actor answers that has loaded the backbone.

    Attributes:
        environment: What must be the same on every node.
        library: Library that runs the backbone there, where that is another one than PyTorch.
    """

    environment: Mapping[str, str]
    library: str | None = None


def name_libraries(libraries: Collection[str | None]) -> str | None:
    """The libraries of all actors in words; None where all have PyTorch."""
    if not any(libraries):
        return None
    return " and ".join(sorted(name or "PyTorch" for name in libraries))


class ShardExtractor:
    """Extracts shards, one after another, with the backbone loaded once.

    Processes that decode for a GPU, too, are started once, and read ahead into the shards that are
    announced.
    """

    def __init__(self) -> None:
        self._announced: deque[int] = deque()
        self._begun: set[int] = set()
        self._beginning = threading.Lock()
        self._results: Iterator[tuple[int, ExtractedShard]] = iter(())
        self._report: BatchCallback = ignore_batch

    def load(self, task: ExtractionTask, actors: int = 1) -> Loaded:
        """Loads the backbone for a task that so many actors share."""
        keep_freed_memory()
        if task.options.workers:
            torch.set_num_threads(task.options.workers)
        self._task = task
        backbone = load_backbone(task.backbone, task.network)
        self._backbone = settle_runtime(task, backbone, len(task.dataset.labels)).backbone
        self._kept = KeptProcesses(len(task.dataset.labels) // actors)
        return Loaded(environment(task, self._backbone.weights_sha256), runtime_of(self._backbone))

    def announce(self, shard: int) -> None:
        """Says that a shard will be asked for after those before it; any thread may call this."""
        self._announced.append(shard)

    def extract(self, shard: int, counter: Any) -> ExtractedShard:  # noqa: ANN401 - an actor's handle
        """Extracts a shard; reports its progress to the counter about twice a second."""
        done = bad = 0
        reported = time.monotonic()

        def report(images: int, bad_images: int) -> None:
            nonlocal done, bad, reported
            done, bad = done + images, bad + bad_images
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                counter.report.remote(shard, done, bad)

        self._report = report
        try:
            if self._begin(shard):
                self._results = extract_shards(
                    self._task,
                    self._backbone,
                    self._with_announced(shard),
                    lambda images, bad: self._report(images, bad),
                    kept=self._kept,
                )
            _, extracted = next(self._results)
        except BaseException:
            self._begun.clear()  # what was read ahead is lost with the shard that failed
            raise
        return extracted

    def _with_announced(self, shard: int) -> Iterator[int]:
        """That shard, and each that is announced before the images of the last one are all read."""
        yield shard
        while self._announced:
            following = self._announced.popleft()
            if self._begin(following):
                yield following

    def _begin(self, shard: int) -> bool:
        """Whether nobody has begun to read a shard yet, which is then begun.

        The next shard may be asked for just when what reads ahead finds it.
        """
        with self._beginning:
            is_new = shard not in self._begun
            self._begun.add(shard)
            return is_new


class ProgressCounter:
    """Progress of each shard that is being extracted; actors report it, the driver reads it."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int]] = {}

    def report(self, shard: int, done: int, bad: int) -> None:
        """Records the number of a shard's images that are done and of those that are bad."""
        self._counts[shard] = (done, bad)

    def counts(self) -> dict[int, tuple[int, int]]:
        """Images done and bad images, by shard."""
        return self._counts


@dataclass
class ProgressReporter:
    """Turns the state of all shards into calls with what has changed."""

    on_batch: BatchCallback
    finished: tuple[int, int] = (0, 0)
    reported: tuple[int, int] = (0, 0)

    def finish(self, done: int, bad: int) -> None:
        """Adds a shard that is written."""
        self.finished = (self.finished[0] + done, self.finished[1] + bad)

    def update(self, counts: Mapping[int, tuple[int, int]]) -> None:
        """Reports the change in progress; negative after an actor died.

        Also calls back when nothing has changed, because the callback may end the run.
        """
        done = self.finished[0] + sum(done for done, _ in counts.values())
        bad = self.finished[1] + sum(bad for _, bad in counts.values())
        self.on_batch(done - self.reported[0], bad - self.reported[1])
        self.reported = (done, bad)
