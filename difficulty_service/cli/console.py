"""The consoles of all commands, the trainer's too, and tables and warnings."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.progress import ProgressColumn, Task
from rich.table import Table
from rich.text import Text

from difficulty_service.base.wording import without_control

if TYPE_CHECKING:
    from pydantic import BaseModel


class LastingConsole(Console):
    """A console whose command goes on when its reader leaves, as `head` does after ten lines.

    What most commands print is not what they make, and a file must not depend on its reader. Names
    of files and classes are printed as they are, brackets too, but control no terminal.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - as rich takes them
        super().__init__(highlight=False, soft_wrap=True, markup=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - as rich takes them
        """A text as it is printed."""
        return super().render_str(without_control(text), **options)

    def on_broken_pipe(self) -> None:
        """Throws away what is still printed; rich would end the command here."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


out = LastingConsole()
err = LastingConsole(stderr=True)
alarm = LastingConsole(stderr=True)
"""Warnings and errors, which a quiet command prints too."""

NARROWEST = 16
"""Cells to which a column may be shortened, however narrow the terminal is."""


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    shorten: str | None = None,
    whole: Sequence[str] = (),
) -> None:
    """Prints aligned columns, numbers to the right.

    Where a row is wider than the console, the cells of the column `shorten` lose their middle, and
    those of the columns `whole` stay on one line.
    """
    texts = [[as_text(cell) for cell in row] for row in rows]
    if shorten is not None and texts:
        index = columns.index(shorten)
        widths = [max(map(cell_len, cells)) for cells in zip(columns, *texts, strict=True)]
        others = sum(widths) - widths[index] + 2 * len(columns)
        for row in texts:
            row[index] = shorten_middle(row[index], max(NARROWEST, out.width - others))
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(columns):
        numeric = bool(rows) and isinstance(rows[0][index], int | float)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in whole)
    for row in texts:
        table.add_row(*map(Text, row))
    out.print(table)


def as_text(cell: object) -> str:
    """A cell as text on one line, without the characters that control a terminal."""
    text = f"{cell:,.2f}" if isinstance(cell, float) else str(cell)
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def shorten_middle(text: str, width: int) -> str:
    """The beginning and the end of a text, with an ellipsis between, in at most `width` cells."""
    if cell_len(text) <= width:
        return text
    ends = range(len(text) + 1)
    head = max(end for end in ends if cell_len(text[:end]) <= (width - 1) // 2)
    tail = min(start for start in ends if cell_len(text[start:]) <= width // 2)
    return f"{text[:head]}…{text[tail:]}"


def print_warnings(sentences: Sequence[str]) -> None:
    """Prints one line each, on standard error."""
    for sentence in sentences:
        alarm.print(f"warning: {sentence}")


def print_page(path: Path) -> None:
    """Says where a page was written."""
    out.print(f"the report is in {path}; open it in a browser")


def print_json(found: "BaseModel") -> None:
    """Prints what was found for programs, on a standard output with nothing else."""
    sys.stdout.write(found.model_dump_json(indent=2) + "\n")


@contextmanager
def without(*consoles: Console) -> Iterator[None]:
    """What is printed on these consoles meanwhile is not seen."""
    for each in consoles:
        each.quiet = True
    try:
        yield
    finally:
        for each in consoles:
            each.quiet = False


class RateColumn(ProgressColumn):
    """Images or samples per second, over the last half minute."""

    def render(self, task: Task) -> Text:
        """The rate, or a dash before the first batch."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "-/s")
