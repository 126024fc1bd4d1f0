"""Modules of JavaScript as one classic script, for where browsers take no modules.

A page that is opened as a file may import nothing, and a script that runs before the page is drawn
is no module. Modules here are written so that one scope can hold all of them: top-level names occur
once, imports name what they take from a file beside them, and exports are declarations.
"""

import re
from collections.abc import Callable, Iterable

IMPORT = re.compile(r'^import (?:\{ ?([\w\s,]+?),? ?\} from )?"\./([\w/]+\.js)";\n+', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let) (.+)$)", re.MULTILINE)
LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
NAME = re.compile(r"(?:^|, )(\w+)(?: =|[ (]|$)")


def classic_script(names: Iterable[str], read: Callable[[str], str]) -> str:
    """A script that runs modules in their order, each after those that it imports, and only once.

    Args:
        names: Files of modules.
        read: Gives the text of a file.

    Raises:
        ValueError: A module has an import or export of another form, or imports what is not there.
    """
    exported: dict[str, set[str]] = {}
    bodies: list[str] = []

    def add(name: str) -> None:
        if name in exported:
            return
        text = read(name)
        exported[name] = {each for line in EXPORT.findall(text) for each in NAME.findall(line)}
        for taken, other in IMPORT.findall(text):
            add(other)
            missing = {*re.findall(r"\w+", taken)} - exported[other]
            if missing:
                raise ValueError(f"{name}: {other} does not export {', '.join(sorted(missing))}")
        body = module_body(text)
        if unknown := LEFT.search(body):
            raise ValueError(f"{name}: {unknown[0]!r} cannot be a part of one script")
        bodies.append(body)

    for name in names:
        add(name)
    return f'"use strict";\n(() => {{\n{"".join(bodies)}}})();\n'


def module_body(text: str) -> str:
    """A module without its imports and without the word `export`."""
    return EXPORT.sub("", IMPORT.sub("", text))
