"""Commands that are imported when they are called, and described without that."""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from cyclopts import App, Group

SCORE, REVIEW, ANALYSES, TRAIN, SERVE = (
    Group(name, sort_key=place)
    for place, name in enumerate(("Score", "Review", "Analyses", "Train", "Serve"))
)
"""Panels of the list of commands, in their order."""


def add_command(
    app: App, function: str, *, name: str | None = None, group: Group | None = None
) -> None:
    """Adds a command, `package.module:function`, after those that are there already.

    Args:
        group: Panel of the list of commands in which it stands; None for one without a name.
    """
    described, place = docstring_of(function), len(list(app))
    app.command(function, name=name, help=described, group=group, sort_key=place)


@cache
def docstring_of(function: str) -> str:
    """What a function does, by its docstring, without importing its module.

    Each paragraph is a line, as wide as the terminal makes it; arguments are left out.
    """
    module, name = function.split(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no module {module}")
    source = Path(spec.origin).read_text(encoding="utf-8")
    # Parsing whole modules would take longer than everything else that `--help` does.
    definition = re.search(rf"^def {name}\(.*?(?=^[^\s)]|\Z)", source, re.DOTALL | re.MULTILINE)
    if definition is None:
        raise AttributeError(f"{module} defines no {name}")
    (parsed,) = ast.parse(definition[0]).body
    assert isinstance(parsed, ast.FunctionDef)  # noqa: S101 - the expression begins with `def`
    described, _, _ = (ast.get_docstring(parsed) or "").partition("\n\nArgs:\n")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", described)
