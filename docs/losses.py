"""Writes the table of losses in docs/training.md from their docstrings and constants.

Run: python docs/losses.py
"""

import inspect
from pathlib import Path

from docs.marked_parts import with_parts
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, loss_constants

PAGE = Path(__file__).with_name("training.md")


def page() -> str:
    """The page with the table of the present losses."""
    losses = sorted((LOSSES | LOSSES_WITH_MEMORY).items())
    rows = [f"| `{name}` | {_sentence(loss)} | {_constants(name)} |" for name, loss in losses]
    header = ["| name | loss | constants |", "| --- | --- | --- |"]
    return with_parts(PAGE, "losses.py", {"losses": "\n".join([*header, *rows, ""])})


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
