"""Progress of shards that are extracted in other processes."""

from collections.abc import Mapping
from dataclasses import dataclass

from difficulty_service.extraction.shards import BatchCallback


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
    """Turns the state of all shards into calls with what has changed.

    Attributes:
        on_batch: The callback.
        finished: Images done and bad images of the shards that are written.
        reported: Images done and bad images in all calls so far.
    """

    on_batch: BatchCallback
    finished: tuple[int, int] = (0, 0)
    reported: tuple[int, int] = (0, 0)

    def finish(self, done: int, bad: int) -> None:
        """Adds a shard that is written."""
        self.finished = (self.finished[0] + done, self.finished[1] + bad)

    def update(self, counts: Mapping[int, tuple[int, int]]) -> None:
        """Reports the change in progress; negative after an actor died.

        Also calls back when nothing has changed, because the callback may end the run.

        Args:
            counts: Images done and bad images of the shards that are being extracted.
        """
        done = self.finished[0] + sum(done for done, _ in counts.values())
        bad = self.finished[1] + sum(bad for _, bad in counts.values())
        self.on_batch(done - self.reported[0], bad - self.reported[1])
        self.reported = (done, bad)
