"""Pages of which some parts are made from code, each between two comments that name it."""

from collections.abc import Mapping
from pathlib import Path

START = "<!-- {name}: written by `python docs/{script}` -->\n\n"
END = "\n<!-- end of {name} -->"


def with_parts(page: Path, script: str, parts: Mapping[str, str]) -> str:
    """The text of a page in which the parts, by their names, are written anew by a script.

    Raises:
        ValueError: The comments around a part are not there, once each.
    """
    text = page.read_text()
    for name, written in parts.items():
        start, end = (mark.format(name=name, script=script) for mark in (START, END))
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = "".join([before, start, written, end, after])
    return text
