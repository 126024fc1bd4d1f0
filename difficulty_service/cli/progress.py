"""The progress bar of an extraction."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from difficulty_service.cli.console import err
from difficulty_service.cli.rate_column import RateColumn

if TYPE_CHECKING:
    from difficulty_service.pipeline import ExtractProgress


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
