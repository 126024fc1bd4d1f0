"""The progress bars of an extraction and of a comparison of samples."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Self

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from difficulty_service.cli.console import RateColumn, err

if TYPE_CHECKING:
    from difficulty_service.backbones.downloads import DownloadProgress
    from difficulty_service.scoring.pipeline import ExtractProgress


class ImageProgressBar:
    """A bar with rate, time left and bad images so far; invisible where there is no terminal.

    Use it as a context manager; it appears with the first call of `update`.
    """

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
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

        self._download: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def update(self, progress: "ExtractProgress") -> None:
        """Shows the progress; the first call starts the clock."""
        if self._task is None:
            if progress.done and err.is_terminal:
                done = f"{progress.done:,} of {progress.total:,} {progress.noun}s"
                err.print(f"resuming: {done} were done before")
            self._bar.start()
            self._task = self._bar.add_task(
                f"{progress.noun}s", total=progress.total, completed=progress.done, bad=progress.bad
            )
            return
        self._bar.update(self._task, completed=progress.done, bad=progress.bad)

    def download(self, progress: "DownloadProgress | None") -> None:
        """Shows the progress of a download on a line of its own, until None ends it."""
        if progress is None:
            self._end_download()
            return
        if self._download is None:
            self._download = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TimeRemainingColumn(),
                console=err,
                disable=not err.is_terminal,
            )
            self._download.start()
            self._download.add_task("")
        waits = not progress.done and progress.total is None
        doing = "waiting for another download" if waits else "downloading weights"
        (task,) = self._download.task_ids
        self._download.update(
            task, description=doing, total=progress.total, completed=progress.done
        )

    def _end_download(self) -> None:
        if self._download is not None:
            self._download.stop()
            self._download = None

    def close(self) -> None:
        """Leaves the bar as it is; further output goes below it."""
        self._end_download()
        if self._task is not None:
            self._bar.stop()


@contextmanager
def comparison_bar(total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left; gives a function that takes how many pairs were compared since."""
    columns = (TextColumn("compared"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *left, console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task("compared", total=total)
        yield lambda compared: bar.advance(task, compared)


class Terminated(KeyboardInterrupt):
    """The process was told to end by SIGTERM, which saves as much as a key press does."""


@contextmanager
def exit_when_interrupted(message: str) -> Iterator[None]:
    """Ends the process when it is interrupted within the context, after what was done is saved.

    The exit code is 128 plus the number of the signal, as of any program that a signal ends.
    """
    handles_signals = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if handles_signals else None
    try:
        yield
    except KeyboardInterrupt as interrupt:
        err.print(message)
        number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
        # A key press while a thread is joined makes Python regard it as finished. The thread would
        # still be inside torch when the interpreter exits, and torch aborts on that.
        sys.stdout.flush()
        os._exit(128 + number)
    finally:
        if handles_signals:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated
