"""Parses JSON that anybody may have written.

Parsers call themselves for a list in a list. Python's stops with an error; that of Arrow goes on
until the stack is full, which ends the process. So what it reads is counted first.
"""

import json
import re
from typing import Any, Protocol

import numpy as np

MOST_LEVELS = 100
"""Lists and objects that may be inside one another in JSON that Arrow parses."""

_OTHERS = bytes(set(range(256)) - set(b'[]{}"\r\n'))
_LINES = bytes.maketrans(b"\r", b"\n")  # both end a line for Arrow
_TEXT = re.compile(rb'"[^"\n]*(?:"|(?=\n)|\Z)')
_STEPS = np.zeros(256, np.int64)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


class NestedTooDeeply(ValueError):
    """JSON with lists or objects inside too many others."""

    def __init__(self) -> None:
        super().__init__("its JSON is nested too deeply")


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - whatever it holds
    """The value of a JSON text; ValueError where it is none, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise NestedTooDeeply from None


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""


class ShallowJson:
    """A stream of JSON, for Arrow to read from, that ends in `NestedTooDeeply` before such a place.

    Arrow parses parts of a stream, which begin after line breaks, whatever it finds in other ones.
    So no part may look shallow because of what is in front of it: a line begins outside of text,
    in which no line may end, and what was never opened closes nothing.
    """

    closed = False

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._levels = 0
        self._pending = b""  # an open quote, a backslash that begins what follows, or both

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, of which none is inside more than MOST_LEVELS lists and objects."""
        data = self._source.read(size)
        self._count(data)
        return data

    def close(self) -> None:
        """Leaves the source open, which belongs to whoever opened it."""

    def _count(self, data: bytes) -> None:
        text = self._pending + data
        escape = text[-1:] * ((len(text) - len(text.rstrip(b"\\"))) % 2)
        text = text.removesuffix(escape)
        marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_LINES, _OTHERS)
        # Empty text goes quickly; texts side by side become one, with the same brackets inside.
        marks = marks.replace(b'""', b"")
        self._pending = b'"' * (marks.rpartition(b"\n")[2].count(b'"') % 2) + escape
        steps = _STEPS[np.frombuffer(_TEXT.sub(b"", marks), np.uint8)]
        if not len(steps):
            return
        levels = self._levels + np.cumsum(steps)
        levels -= np.minimum(np.minimum.accumulate(levels), 0)
        if levels.max() > MOST_LEVELS:
            raise NestedTooDeeply
        self._levels = int(levels[-1])
