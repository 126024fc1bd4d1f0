"""The consoles of all commands, the trainer's too, and tables and warnings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import ProgressColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Task

out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, soft_wrap=True, stderr=True)


class RateColumn(ProgressColumn):
    """Images or samples per second, over the last half minute."""

    def render(self, task: "Task") -> Text:
        """The rate, or a dash before the first batch."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "-/s")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints aligned columns, numbers to the right."""
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(columns):
        numeric = bool(rows) and isinstance(rows[0][index], int | float)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in row))
    out.print(table)


def print_warnings(sentences: Sequence[str]) -> None:
    """Prints one line each, on standard error."""
    for sentence in sentences:
        err.print(f"warning: {sentence}", markup=False)
