"""Writes the tables of losses and of shipped recipes in docs/training.md from their files.

Run: python docs/training.py
"""

import inspect
import re
from itertools import takewhile
from pathlib import Path

from docs.marked_parts import with_parts
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, loss_constants
from trainer.recipes.file import shipped_recipes

RECIPES = Path(__file__).parents[1] / "trainer" / "recipes"
PAGE = Path(__file__).with_name("training.md")


def page() -> str:
    """The page with the present losses and recipes."""
    losses = sorted((LOSSES | LOSSES_WITH_MEMORY).items())
    rows = [f"| `{name}` | {_sentence(loss)} | {_constants(name)} |" for name, loss in losses]
    header = ["| name | loss | constants |", "| --- | --- | --- |"]
    losses_table = "\n".join([*header, *rows, ""])
    return with_parts(PAGE, "training.py", {"recipes": _recipes(), "losses": losses_table})


def _recipes() -> str:
    """The first sentence of the comment at the beginning of each shipped recipe."""
    files = {file.stem: file for file in sorted(RECIPES.glob("*.toml"))}
    rows = [f"| `{name}` | {_first_sentence(files[name])} |" for name in shipped_recipes()]
    return "\n".join(["| recipe | what it trains |", "| --- | --- |", *rows, ""])


def _first_sentence(file: Path) -> str:
    comment = takewhile(lambda line: line.startswith("#"), file.read_text().splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in comment)
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


def _sentence(loss: object) -> str:
    """The first line of its docstring."""
    line = (inspect.getdoc(loss) or "").partition("\n")[0]
    return line.replace("|", r"\|")


def _constants(name: str) -> str:
    return ", ".join(f"`{each}` {_default(value)}" for each, value in loss_constants(name).items())


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return " / ".join(_default(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page())
