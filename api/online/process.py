"""The process that scores single samples: it encodes samples and has the Gaussians of jobs.

In the process of the web server that work would compete with it for Python's interpreter lock,
which cost a fifth of the rate; importing torch alone would take 300 MB there; and an image that
crashes a decoder crashes that process, not the service.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from api.bounded_cache import BoundedCache
from api.http.problems import conflict, unavailable
from api.jobs.files import GAUSSIANS_FILE, files_gone
from api.jobs.store import Job
from api.logs import set_up_logging
from api.online.sample_scores import EncodedScores, SampleScores
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.base.apart import Apart, ProcessEnded
from difficulty_service.base.process_setup import have_arrow_use_malloc, keep_freed_memory
from difficulty_service.features.description import FeatureDescription


class ScoringProcess:
    """Scores samples in a process that starts with the first one, and again if it has died."""

    def __init__(self, settings: Settings, at_once: int = 4) -> None:
        self._scorer = Apart(partial(_make_scorer, settings), threads=at_once)

    def describe(self, job: Job) -> tuple[int, FeatureDescription]:
        """Length of a feature vector of a job that has Gaussians, and the features' description."""
        return self._call("describe", job)

    def encode_and_score(
        self, job: Job, samples: Sequence[bytes], labels: NDArray[np.int64]
    ) -> EncodedScores:
        """Scores of samples against the Gaussians of a job, from features like those of the job.

        Samples are the contents of image files, or texts as UTF-8 for a job of texts. Labels are
        class indices, -1 where unknown.
        """
        return self._call("encode_and_score", job, list(samples), labels)

    def score(
        self, job: Job, features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> SampleScores:
        """Scores of features of shape (samples, dim), with labels likewise."""
        return self._call("score", job, features, labels)

    def encode_words(
        self, job: Job, text: str, weights: str | None
    ) -> tuple[NDArray[np.float32], Path]:
        """A text, and the file of a job's images, as by `WordEncoder.encode`."""
        return self._call("encode_words", job, text, weights)

    def close(self) -> None:
        """Ends the process, once it is idle."""
        self._scorer.close()

    def _call(self, method: str, *args: object) -> Any:  # noqa: ANN401 - whatever the method gives
        try:
            return self._scorer.call(method, *args)
        except ProcessEnded as error:
            structlog.get_logger().error("scoring-process-died", exc_info=error)
            raise unavailable(
                "the process that scores samples ended meanwhile",
                "send the request again; leave out a sample with which it fails each time",
                headers={"Retry-After": "1"},
            ) from None


def _make_scorer(settings: Settings) -> Callable[..., object]:
    set_up_logging(settings)
    keep_freed_memory()
    have_arrow_use_malloc()
    # Imported here, because only that process needs torch.
    from api.online.scorer import OnlineScorer

    return OnlineScorer(settings).call


@dataclass(frozen=True)
class JobGaussians:
    """Gaussians of a job."""

    job: Job
    dim: int  # length of a feature vector
    description: FeatureDescription  # of the features that they were fitted to

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class index."""
        return self.description.class_names


class ScoringModels:
    """Finds the Gaussians of jobs and remembers those used last."""

    def __init__(self, artifacts: Artifacts, process: ScoringProcess, capacity: int = 4) -> None:
        self._artifacts = artifacts
        self._process = process
        self._cache: BoundedCache[str, JobGaussians] = BoundedCache(capacity)

    def get(self, job: Job) -> JobGaussians:
        """The Gaussians of a job."""
        if job.state != "succeeded" or job.result is None:
            raise conflict(
                f"job {job.id!r} is {job.state}, so it has no Gaussians",
                "wait until its state is succeeded, or use another job",
            )
        prefix = job.result.prefix
        return self._cache.get(prefix, lambda: self._find(job, f"{prefix}/{GAUSSIANS_FILE}"))

    def known(self, job: Job) -> JobGaussians | None:
        """The Gaussians of a job if they can be had without waiting."""
        if job.state != "succeeded" or job.result is None:
            return None
        return self._cache.known(job.result.prefix)

    def _find(self, job: Job, key: str) -> JobGaussians:
        if self._artifacts.size(key) is None:
            if job.wanted.gaussians is None:
                raise files_gone(job)
            raise conflict(
                f"job {job.id!r} used the Gaussians of another job",
                f"use that job: {job.wanted.gaussians!r}",
            )
        return JobGaussians(job, *self._process.describe(job))
