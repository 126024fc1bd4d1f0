"""How many streams of events are open, and which of them makes room for one of another key."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from api.http.problems import Problem, too_many

RETRY_AFTER = 10  # seconds
SHARES = 10  # of keys that have all the streams they may have, when all are taken


@dataclass(eq=False)
class EventStream:
    """A stream that is open, until it has to make room for one of another key."""

    makes_room: bool = False

    def check(self) -> None:
        """Raises a `Problem` where the stream has to make room."""
        if self.makes_room:
            raise _too_many("this one made room for that of a key with fewer")


class EventStreams:
    """The open streams, of which each key has a share, however many another one opens.

    A key may have `share` streams. Where all of them are taken, one of a key with at least two
    fewer than the key with the most takes the place of the oldest of that key. So no key is
    without one that others could spare, and no two keys displace each other for ever.
    """

    def __init__(self, share: int = 20, most: int | None = None) -> None:
        self._share = share
        self._most = SHARES * share if most is None else most
        self._open: dict[str, deque[EventStream]] = {}

    def number_of(self, owner: str) -> int:
        """Number of open streams of a key."""
        return len(self._open.get(owner, ()))

    @contextmanager
    def opened(self, owner: str) -> Iterator[EventStream]:
        """Counts a stream while it is open; refused where too many are. For the event loop only."""
        number = self.number_of(owner)
        if number >= self._share:
            raise _too_many(f"{number} event streams of this key are open")
        if sum(map(len, self._open.values())) >= self._most:
            self._make_room(number)
        stream = EventStream()
        self._open.setdefault(owner, deque()).append(stream)
        try:
            yield stream
        finally:
            if not stream.makes_room:
                self._remove(owner, stream)

    def _make_room(self, number: int) -> None:
        """Ends the oldest stream of the key with the most, for one of a key with `number`."""
        largest = max(self._open, key=lambda each: len(self._open[each]))
        if len(self._open[largest]) < number + 2:
            raise _too_many(f"all {self._most} event streams are open, and {number} of this key")
        oldest = self._open[largest][0]
        oldest.makes_room = True
        self._remove(largest, oldest)

    def _remove(self, owner: str, stream: EventStream) -> None:
        self._open[owner].remove(stream)
        if not self._open[owner]:
            del self._open[owner]


def _too_many(detail: str) -> Problem:
    return too_many(
        detail,
        "close some, or ask GET /v1/jobs/{id} now and then",
        headers={"Retry-After": str(RETRY_AFTER)},
    )
