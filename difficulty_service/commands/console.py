"""What a person sees: progress on a terminal, summaries everywhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
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


@contextmanager
def watch_images(total: int, done: int, bad: int) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate, time left and bad images so far; nothing where there is no terminal."""
    bar = Progress(
        TextColumn("images"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("bad {task.fields[bad]}"),
        console=err,
        disable=not err.is_terminal,
    )
    if done and err.is_terminal:
        err.print(f"resuming: {done:,} of {total:,} images were done before")
    with bar:
        task = bar.add_task("images", total=total, completed=done, bad=bad)
        bad_so_far = bad

        def advance(images: int, bad_images: int) -> None:
            nonlocal bad_so_far
            bad_so_far += bad_images
            bar.update(task, advance=images, bad=bad_so_far)

        yield advance


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns, numbers to the right."""
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(columns):
        numeric = bool(rows) and isinstance(rows[0][index], int | float)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in row))
    out.print(table)


def print_warnings(sentences: Sequence[str]) -> None:
    """One line each, on standard error."""
    for sentence in sentences:
        err.print(f"warning: {sentence}", markup=False)
