"""A cache of the Gaussians of finished jobs, ready to score single samples.

Scores feature vectors against the Gaussians of a finished job.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from api.bounded_cache import BoundedCache
from api.jobs.files import GAUSSIANS_FILE, SCORES_FILE, damaged, open_stored, open_stored_parquet
from api.jobs.store import Job
from api.online.sample_scores import SampleScores
from api.storage.artifacts import Artifacts, save
from difficulty_service.base.checksums import DamagedFile, verify_path
from difficulty_service.base.errors import StatisticsError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.scorers.mahalanobis import RelativeMahalanobis, relative_mahalanobis
from difficulty_service.scores.fitted_gaussians import load_gaussians


@dataclass(frozen=True)
class ScoringModel:
    """Scores new samples like those of a job."""

    scorer: RelativeMahalanobis
    description: FeatureDescription  # of the features that the Gaussians were fitted to
    training_scores: NDArray[np.float64]  # RMD of the samples of the job, ascending, without NaN

    @property
    def dim(self) -> int:
        """Length of a feature vector."""
        return len(self.scorer.mean)

    def score(self, features: Tensor, labels: Tensor) -> SampleScores:
        """Distances and difficulty of samples, of features of shape (samples, dim).

        Labels are class indices; -1 where unknown, for which the nearest class is used.
        """
        distances = self.scorer.distances(features, labels)
        nearest = distances.nearest_label
        if (labels < 0).any():
            distances = self.scorer.distances(features, torch.where(labels >= 0, labels, nearest))
        return SampleScores(
            labels=labels.numpy(),
            nearest=nearest.numpy(),
            md=distances.md.numpy(),
            md_agnostic=distances.md_agnostic.numpy(),
            rmd=distances.rmd.numpy(),
            label_margin=distances.label_margin.numpy(),
            percentile=self._percentiles(distances.rmd.numpy()),
        )

    def _percentiles(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fraction of the job's samples that are easier, ties counted half. Shape (samples,)."""
        if not len(self.training_scores):
            return np.full(len(scores), np.nan)
        below = np.searchsorted(self.training_scores, scores, side="left")
        below_or_equal = np.searchsorted(self.training_scores, scores, side="right")
        shares = (below + below_or_equal) / 2 / len(self.training_scores)
        return np.where(np.isnan(scores), np.nan, shares)


MAX_TRAINING_SCORES = 1_000_000
"""Maximum number of scores, evenly spaced: enough for percentiles to a millionth."""


class LoadedModels:
    """Gaussians by job, loaded on first use; remote files are copied to a local folder."""

    def __init__(self, artifacts: Artifacts, folder: Path, capacity: int = 4) -> None:
        self._artifacts = artifacts
        self._folder = folder
        self._cache: BoundedCache[str, ScoringModel] = BoundedCache(capacity)

    def get(self, job: Job) -> ScoringModel:
        """The Gaussians of a succeeded job that has some."""
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
