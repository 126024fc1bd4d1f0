"""How many events a repeated part of a program makes, for `Ledger`."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.pretend.ledger import BLOCKING, FREE, LEDGER, WAIT, Event

KINDS = (WAIT, BLOCKING)


def counted(function: Callable[[], object]) -> dict[str, Any]:
    """What one call of a function makes a program wait for."""
    before = Counter(LEDGER.events)
    function()
    return _table(LEDGER.events - before, 1)


class Rounds:
    """Counts between the ends of rounds, such as batches, without the first one."""

    def __init__(self) -> None:
        self._seen: list[Counter[Event]] = []

    def end(self, *_arguments: object) -> None:
        """Notes that a round has ended."""
        self._seen.append(Counter(LEDGER.events))

    def each(self, number: int) -> dict[str, Any]:
        """What each of so many rounds after the first one makes a program wait for, on average."""
        return _table(self._seen[number] - self._seen[0], number)


def _table(events: Counter[Event], rounds: int) -> dict[str, Any]:
    counts: dict[str, Any] = {
        kind: sum(number for event, number in events.items() if event[0] == kind) / rounds
        for kind in KINDS
    }
    counts["lines"] = [
        f"{number / rounds:g} of {kind}: {what}"
        for (kind, what), number in events.most_common()
        if kind != FREE
    ]
    return counts
