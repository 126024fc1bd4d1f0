"""What the other process has: backbones, the Gaussians of finished jobs, and scores of samples."""

import io
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from torch import Tensor

from api.bounded_cache import BoundedCache
from api.http.problems import Problem
from api.jobs import files
from api.jobs.store import Job
from api.online.encoder import BackbonePool
from api.online.sample_scores import EncodedScores, SampleScores
from api.online.word_encoder import WordEncoder
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts, save
from difficulty_service.base.checksums import DamagedFile, verify_path
from difficulty_service.base.devices import failure_of_gpu
from difficulty_service.base.errors import DifficultyError, StatisticsError
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.features.description import FeatureDescription
from difficulty_service.scorers.mahalanobis import MahalanobisScorer, relative_mahalanobis
from difficulty_service.scoring.fitted_gaussians import load_gaussians


@dataclass(frozen=True)
class ScoringModel:
    """Scores new samples like those of a job."""

    scorer: MahalanobisScorer
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
        key = job.key(files.GAUSSIANS_FILE)
        with files.noticing_deletion(job):
            return self._cache.get(key, lambda: self._load(job, key))

    def _load(self, job: Job, key: str) -> ScoringModel:
        path = self._folder / key
        try:
            whole = verify_path(path) is not None  # a file that was cut has lost its checksum
        except (FileNotFoundError, DamagedFile):
            whole = False
        if not whole:
            save(files.open_stored(self._artifacts, job, files.GAUSSIANS_FILE), path)
        try:
            gaussians, description = load_gaussians(path)
        except StatisticsError as error:
            if not path.exists():
                raise files.files_gone(job) from None
            raise files.damaged(job, files.GAUSSIANS_FILE) from error
        return ScoringModel(
            scorer=relative_mahalanobis(gaussians),
            description=description,
            training_scores=self._training_scores(job),
        )

    def _training_scores(self, job: Job) -> NDArray[np.float64]:
        with files.open_stored_parquet(self._artifacts, job, files.SCORES_FILE) as file:
            column = file.read(["rmd"])["rmd"]
        scores = column.to_numpy().astype(np.float64)
        scores = np.sort(scores[~np.isnan(scores)])
        if len(scores) > MAX_TRAINING_SCORES:
            positions = np.linspace(0, len(scores) - 1, MAX_TRAINING_SCORES).round()
            scores = scores[positions.astype(np.int64)]
        return scores


class OnlineScorer:
    """Loaded backbones and Gaussians."""

    def __init__(self, settings: Settings) -> None:
        self._device = settings.sample_device
        self._backbones = BackbonePool(settings.machine)
        end_with_slow_image(self._backbones.watch, settings.image_seconds)
        artifacts = open_artifacts(settings.artifact_root)
        self._models = LoadedModels(artifacts, files.gaussians_folder(settings))
        self._words = WordEncoder(settings, artifacts)

    def call(self, method: str, *args: object) -> object:
        """Calls another method by its name.

        Raises:
            Problem, DifficultyError, OSError: As the method raises them.
            RuntimeError: Instead of any other error, which the web server might need torch to read.
        """
        try:
            return getattr(self, method)(*args)
        except (Problem, DifficultyError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - every error goes to the web server
            structlog.get_logger().error("scoring-failed", exc_info=error)
            if failure_of_gpu(self._device) is not None:
                os._exit(1)  # another process can compute on it again
            raise RuntimeError(f"{type(error).__name__}: {error}") from None

    def describe(self, job: Job) -> tuple[int, FeatureDescription]:
        """Length of a feature vector, and the description of the features."""
        model = self._models.get(job)
        return model.dim, model.description

    def encode_and_score(
        self, job: Job, samples: Sequence[bytes], labels: NDArray[np.int64]
    ) -> EncodedScores:
        """Scores of files in memory, as by `BackbonePool.encode` and `ScoringModel.score`."""
        model = self._models.get(job)
        openers = [partial(io.BytesIO, sample) for sample in samples]
        encoded = self._backbones.encode(openers, model.description)
        features = [each for each in encoded if isinstance(each, Tensor)]
        readable = torch.tensor([isinstance(each, Tensor) for each in encoded])
        chosen = torch.from_numpy(labels)[readable]
        return EncodedScores(
            tuple(None if isinstance(each, Tensor) else each for each in encoded),
            model.score(torch.stack(features), chosen) if features else None,
        )

    def encode_words(
        self, job: Job, text: str, weights: str | None
    ) -> tuple[NDArray[np.float32], Path]:
        """A text and the vectors of a job's images, as by `WordEncoder.encode`."""
        return self._words.encode(job, text, weights)

    def score(
        self, job: Job, features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> SampleScores:
        """Scores of features of shape (samples, dim), as by `ScoringModel.score`."""
        return self._models.get(job).score(torch.from_numpy(features), torch.from_numpy(labels))


def end_with_slow_image(watch: ImageWatch, seconds: float) -> None:
    """Ends this process once an image takes longer: no thread can be ended from outside."""

    def look() -> None:
        while not any(image.seconds > seconds for image in watch.under_way()):
            time.sleep(min(1.0, seconds / 4))
        structlog.get_logger().error("image-too-slow", seconds=seconds)
        os._exit(1)

    threading.Thread(target=look, name="slow-images", daemon=True).start()
