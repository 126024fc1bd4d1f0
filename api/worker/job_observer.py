"""Who follows a job while it runs, and what it is told."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from api.jobs.queue import Progress
from api.worker.job_messages import Stage
from difficulty_service.backbones.downloads import DownloadProgress
from difficulty_service.base.errors import ImageError
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.scoring.pipeline import ExtractProgress

MAX_UNREADABLE = 10_000  # images, before their share counts
UNREADABLE_SHARE = 0.9


def ignore(_event: object) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True)
class Observer:
    """Whoever follows a job; what `check` raises, with a batch or between stages, ends it."""

    check: Callable[[Progress], None] = ignore
    enter: Callable[[Stage], None] = ignore  # with each stage that begins
    images: ImageWatch | None = None  # is told which are being read and decoded


class Reporter:
    """Tells an observer about the progress of a job."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._began = 0.0
        self._first: ExtractProgress | None = None
        self._before = Progress()  # of earlier stages
        self._last = Progress()

    def update(self, progress: ExtractProgress) -> None:
        """Reports the progress of an extraction, and its rate in this attempt.

        What an earlier stage extracted counts, too: windows come after all samples.
        """
        rate = None
        if self._first is None:
            self._began, self._first = time.monotonic(), progress
        else:
            # One batch always takes some time, but a clock may be too coarse to measure it.
            seconds = max(time.monotonic() - self._began, 1e-3)
            rate = (progress.done - self._first.done) / seconds
        before = self._before
        done, total = before.done + progress.done, before.done + progress.total
        self._last = Progress(done, total, before.bad + progress.bad, rate)
        self._observer.check(self._last)
        if progress.bad > MAX_UNREADABLE and progress.bad > UNREADABLE_SHARE * progress.done:
            # Rather than try millions in vain.
            raise ImageError(
                f"{progress.bad:,} of the first {progress.done:,} images cannot be read",
                "check that the dataset holds images; a job with a small limit lists the reasons",
            )

    def download(self, progress: DownloadProgress | None) -> None:
        """Reports the progress of a download of weights, or with None its end."""
        if (progress is None) != (self._last.download is None):
            self._observer.enter(Stage.EXTRACTING if progress is None else Stage.DOWNLOADING)
        self._last = replace(self._last, download=progress)
        self._observer.check(self._last)

    def enter(self, stage: Stage) -> None:
        """Reports that a stage begins, after all samples were extracted."""
        self._last = replace(self._last, rate=None)
        self._first, self._before = None, self._last
        self._observer.enter(stage)
        self._observer.check(self._last)
