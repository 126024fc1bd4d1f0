"""The Gaussians of finished jobs, as the web server knows them: without the numbers."""

from dataclasses import dataclass

from api.bounded_cache import BoundedCache
from api.http.problems import Problem
from api.jobs.files import GAUSSIANS_FILE
from api.jobs.store import Job
from api.online.process import ScoringProcess
from api.storage.artifacts import Artifacts
from difficulty_service.features.description import FeatureDescription


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
            raise Problem(
                409,
                "conflict",
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
            raise Problem(
                409,
                "conflict",
                f"job {job.id!r} used the Gaussians of another job",
                f"use that job: {job.request.get('gaussians')!r}",
            )
        return JobGaussians(job, *self._process.describe(job))
