"""The consoles of all commands, progress bars, tables and warnings."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Task

    from difficulty_service.pipeline import ExtractProgress

out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, soft_wrap=True, stderr=True)


class RateColumn(ProgressColumn):
    """Images or samples per second, over the last half minute."""

    def render(self, task: "Task") -> Text:
        """The rate, or a dash before the first batch."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "-/s")


class ImageProgressBar:
    """A bar with rate, time left and bad images so far; invisible where there is no terminal.

    Use it as a context manager; it appears with the first call of `update`.
    """

    def __init__(self) -> None:
        self._bar = Progress(
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
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def update(self, progress: "ExtractProgress") -> None:
        """Shows the progress; the first call starts the clock."""
        if self._task is None:
            if progress.done and err.is_terminal:
                err.print(
                    f"resuming: {progress.done:,} of {progress.total:,} images were done before"
                )
            self._bar.start()
            self._task = self._bar.add_task(
                "images", total=progress.total, completed=progress.done, bad=progress.bad
            )
            return
        self._bar.update(self._task, completed=progress.done, bad=progress.bad)

    def close(self) -> None:
        """Leaves the bar as it is; further output goes below it."""
        if self._task is not None:
            self._bar.stop()


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
