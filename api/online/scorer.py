"""The object in the other process that encodes samples and scores features."""

import io
import os
import threading
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from torch import Tensor

from api.http.problems import Problem
from api.jobs.files import gaussians_folder
from api.jobs.store import Job
from api.online.encoder import BackbonePool
from api.online.loaded_models import LoadedModels
from api.online.sample_scores import EncodedScores, SampleScores
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from difficulty_service.backbones.backbone import choose_device
from difficulty_service.base.errors import DifficultyError
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.features.description import FeatureDescription


class Scorer:
    """Loaded backbones and Gaussians."""

    def __init__(self, settings: Settings) -> None:
        self._backbones = BackbonePool(choose_device(settings.device), settings.max_pixels)
        end_with_slow_image(self._backbones.watch, settings.image_seconds)
        self._models = LoadedModels(
            open_artifacts(settings.artifact_root), gaussians_folder(settings)
        )

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
