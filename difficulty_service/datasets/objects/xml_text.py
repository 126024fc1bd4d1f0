"""XML as bytes with the places of its elements, so that only some of them are replaced."""

import re
from collections.abc import Mapping
from xml.parsers import expat
from xml.sax.saxutils import escape

from difficulty_service.datasets.json_spans import Span

_MOST_DEPTH = 32
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"<\x00", b"\x00<")
_ATTRIBUTE = re.compile(rb"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_IN_ATTRIBUTES = {'"': "&quot;", "'": "&apos;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"}


class XmlReader:
    """Reads bytes of XML; refuses entities, which may grow, and what is nested too deeply.

    Attributes:
        path: Names of the elements that are open.
        began: Place of the tag that was opened last.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.path: list[str] = []
        self.began = 0
        self._parts: list[str] = []

    def read(self) -> None:
        """Reads all; raises ValueError or ExpatError."""
        if self.data.startswith(_WIDE):
            raise ValueError("it is in UTF-16; write it as UTF-8")
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._parts.append
        parser.EntityDeclHandler = self._refuse
        self._parser = parser
        parser.Parse(self.data, True)  # noqa: FBT003

    def opened(self, attributes: Mapping[str, str]) -> None:
        """Is called at each element with its attributes; `path` ends with it."""

    def closed(self, text: str, end: int) -> None:
        """Is called at the end of each element, with the text since the last tag.

        Args:
            end: Place of the end tag, or the one after an element that is empty.
        """

    def last_of(self, end: int) -> int:
        """The place after the element that is closed."""
        is_tag = self.data.startswith(f"</{self.path[-1]}".encode(), end)
        return self.data.index(b">", end) + 1 if is_tag else end

    def _refuse(self, *_: object) -> None:
        raise ValueError("it declares entities")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.path.append(name)
        if len(self.path) > _MOST_DEPTH:
            raise ValueError("it is nested too deeply")
        self._parts.clear()
        self.began = self._parser.CurrentByteIndex
        self.opened(attributes)

    def _end(self, _name: str) -> None:
        self.closed("".join(self._parts), self._parser.CurrentByteIndex)
        self.path.pop()
        self._parts.clear()


def without(data: bytes, span: Span) -> tuple[int, int, bytes]:
    """The edit that takes an element out with the blanks before it."""
    return len(data[: span[0]].rstrip(b" \t\r\n")), span[1], b""


def as_content(text: str) -> bytes:
    """A text between tags. References to characters are the same in every encoding."""
    return escape(text).encode("ascii", "xmlcharrefreplace")


def with_attribute(data: bytes, tag: int, name: str, value: str) -> tuple[int, int, bytes]:
    """The edit that gives an attribute of the tag at a place another value."""
    matches = _ATTRIBUTE.finditer(data, tag)
    found = next(each for each in matches if each[1] == name.encode())
    new = escape(value, _IN_ATTRIBUTES).encode("ascii", "xmlcharrefreplace")
    return found.start(2) + 1, found.end(2) - 1, new
