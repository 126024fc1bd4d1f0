"""How far shards have come that are extracted elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass

from difficulty_service.extraction.shards import Progress


class ProgressCounter:
    """How far each shard under way has come; asked by the driver, told by actors."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int]] = {}

    def report(self, shard: int, done: int, bad: int) -> None:
        """Takes note of a shard's images done and of those that were bad."""
        self._counts[shard] = (done, bad)

    def counts(self) -> dict[int, tuple[int, int]]:
        """Images done and bad, by shard."""
        return self._counts


@dataclass
class ShownProgress:
    """What progress was told, so that it can be told the difference."""

    progress: Progress
    finished: tuple[int, int] = (0, 0)
    told: tuple[int, int] = (0, 0)

    def finish(self, done: int, bad: int) -> None:
        """A shard is written."""
        self.finished = (self.finished[0] + done, self.finished[1] + bad)

    def under_way(self, counts: Mapping[int, tuple[int, int]]) -> None:
        """Tells how far everything has come; back a little where an actor died.

        Also where that is nowhere: whoever is told may want to end the run.
        """
        done = self.finished[0] + sum(done for done, _ in counts.values())
        bad = self.finished[1] + sum(bad for _, bad in counts.values())
        self.progress(done - self.told[0], bad - self.told[1])
        self.told = (done, bad)
