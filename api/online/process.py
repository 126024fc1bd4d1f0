"""The process that scores single samples: it encodes samples and has the Gaussians of jobs.

In the process of the web server that work would compete with it for Python's interpreter lock,
which cost a fifth of the rate; importing torch alone would take 300 MB there; and an image that
crashes a decoder crashes that process, not the service.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from api.http.problems import Problem
from api.jobs.rows import Job
from api.logs import set_up_logging
from api.online.answers import Failure
from api.online.sample_scores import EncodedScores, SampleScores
from api.parent_process import call_after_parent
from api.settings import Settings
from difficulty_service.runtime.process_setup import keep_freed_memory


class ScoringManager(BaseManager):
    """Starts the process and calls it; each calling thread is served by a thread of its own."""


def _make_scorer(settings: Settings) -> object:
    # Imported here, because only that process needs torch.
    from api.online.scorer import Scorer

    return Scorer(settings)


ScoringManager.register("Scorer", _make_scorer, exposed=("describe", "encode_and_score", "score"))


@dataclass(frozen=True)
class Connection:
    """A running process and the proxy of its scorer."""

    manager: ScoringManager
    scorer: Any


class ScoringProcess:
    """Scores samples in a process that starts with the first one, and again if it has died.

    Args:
        settings: Settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def describe(self, job: Job) -> tuple[int, Mapping[str, Any]]:
        """Length of a feature vector of a job that has Gaussians, and the features' description.

        Raises:
            Problem: Its files are gone or damaged, or the process died.
        """
        described: tuple[int, Mapping[str, Any]] = self._call(lambda scorer: scorer.describe(job))
        return described

    def encode_and_score(
        self, job: Job, samples: Sequence[bytes], labels: NDArray[np.int64]
    ) -> EncodedScores:
        """Scores of samples against the Gaussians of a job, from features like those of the job.

        Args:
            job: A job that has Gaussians.
            samples: Contents of image files, or texts as UTF-8 for a job of texts.
            labels: Class indices; -1 where unknown. Shape (samples,).

        Raises:
            Problem: Its files are gone or damaged, the weights of the backbone are not those that
                the job used, or the process died.
        """
        scores: EncodedScores = self._call(
            lambda scorer: scorer.encode_and_score(job, list(samples), labels)
        )
        return scores

    def score(
        self, job: Job, features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> SampleScores:
        """Scores of samples against the Gaussians of a job.

        Args:
            job: A job that has Gaussians.
            features: Shape (samples, dim).
            labels: Class indices; -1 where unknown. Shape (samples,).

        Raises:
            Problem: Its files are gone or damaged, or the process died.
        """
        scores: SampleScores = self._call(lambda scorer: scorer.score(job, features, labels))
        return scores

    def close(self) -> None:
        """Ends the process."""
        if self._connection is not None:
            self._end(self._connection)

    def _call(self, call: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever the call gives
        connection = self._connect()
        try:
            answer = call(connection.scorer)
        except (EOFError, OSError) as error:
            structlog.get_logger().error("scoring-process-died", exc_info=error)
            self._end(connection)
            raise Problem(
                503,
                "unavailable",
                "the process that scores samples ended meanwhile",
                "send the request again; leave out a sample with which it fails each time",
                headers={"Retry-After": "1"},
            ) from None
        if isinstance(answer, Failure):
            raise answer.error
        return answer

    def _connect(self) -> Connection:
        with self._lock:
            if self._connection is None:
                # Never forked: threads of this process may hold locks, which a fork would wait for.
                manager = ScoringManager(ctx=multiprocessing.get_context("spawn"))
                manager.start(_set_up_process, (self._settings,))
                scorer = manager.Scorer(self._settings)  # type: ignore[attr-defined]
                self._connection = Connection(manager, scorer)
            return self._connection

    def _end(self, connection: Connection) -> None:
        with self._lock:
            # Another thread may have noticed as well and started the next process already.
            if self._connection is connection:
                self._connection = None
                connection.manager.shutdown()


def _set_up_process(settings: Settings) -> None:
    # Signals to the process group go to the server too, which ends this process last.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    set_up_logging(settings)
    keep_freed_memory()
    # A server that ends in order ends this process first; one that was killed could not.
    call_after_parent(lambda: os._exit(1))
