"""A cache of the Gaussians of finished jobs, ready to score single samples."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from api.bounded_cache import BoundedCache
from api.jobs.files import GAUSSIANS_FILE, SCORES_FILE
from api.jobs.rows import Job
from api.jobs.stored_files import damaged, open_stored, open_stored_parquet
from api.online.scoring_model import ScoringModel
from api.storage.artifacts import Artifacts, save
from difficulty_service.errors import StatisticsError
from difficulty_service.files.checksum import DamagedFile, verify_path
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.statistics.gaussian_file import load_gaussians

MAX_TRAINING_SCORES = 1_000_000
"""Maximum number of scores, evenly spaced: enough for percentiles to a millionth."""


class LoadedModels:
    """Gaussians by job, loaded on first use.

    Args:
        artifacts: Storage of the results.
        folder: Folder for local copies of remote files.
        capacity: Maximum number of jobs in the cache.
    """

    def __init__(self, artifacts: Artifacts, folder: Path, capacity: int = 4) -> None:
        self._artifacts = artifacts
        self._folder = folder
        self._cache: BoundedCache[str, ScoringModel] = BoundedCache(capacity)

    def get(self, job: Job) -> ScoringModel:
        """The Gaussians of a succeeded job that has some.

        Raises:
            Problem: Its files are gone or damaged.
        """
        assert job.result is not None  # noqa: S101 - because it succeeded
        prefix = job.result.prefix
        return self._cache.get(prefix, lambda: self._load(job, f"{prefix}/{GAUSSIANS_FILE}"))

    def _load(self, job: Job, key: str) -> ScoringModel:
        try:
            gaussians, description = load_gaussians(self._local_copy(job, key))
        except StatisticsError as error:
            raise damaged(job, GAUSSIANS_FILE) from error
        return ScoringModel(
            scorer=relative_mahalanobis(gaussians),
            description=description,
            training_scores=self._training_scores(job),
        )

    def _local_copy(self, job: Job, key: str) -> Path:
        path = self._folder / key
        if not _is_whole(path):
            save(open_stored(self._artifacts, job, GAUSSIANS_FILE), path)
        return path

    def _training_scores(self, job: Job) -> NDArray[np.float64]:
        with open_stored_parquet(self._artifacts, job, SCORES_FILE) as file:
            column = file.read(["rmd"])["rmd"]
        scores = column.to_numpy().astype(np.float64)
        scores = np.sort(scores[~np.isnan(scores)])
        if len(scores) > MAX_TRAINING_SCORES:
            positions = (
                np.linspace(0, len(scores) - 1, MAX_TRAINING_SCORES).round().astype(np.int64)
            )
            scores = scores[positions]
        return scores


def _is_whole(path: Path) -> bool:
    """Whether there is a local copy, and it is not damaged."""
    try:
        verify_path(path)
    except (FileNotFoundError, DamagedFile):
        return False
    return True
