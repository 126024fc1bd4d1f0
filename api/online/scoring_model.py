"""Scores feature vectors against the Gaussians of a finished job."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from api.online.sample_scores import SampleScores
from difficulty_service.feature_description import FeatureDescription
from difficulty_service.scorers.mahalanobis import RelativeMahalanobis


@dataclass(frozen=True)
class ScoringModel:
    """Scores new samples like those of a job.

    Attributes:
        scorer: Scorer with the Gaussians of the job.
        description: Description of the features that the Gaussians were fitted to.
        training_scores: RMD of the samples of the job, ascending, without NaN. Shape (samples,).
    """

    scorer: RelativeMahalanobis
    description: FeatureDescription
    training_scores: NDArray[np.float64]

    @property
    def dim(self) -> int:
        """Length of a feature vector."""
        return len(self.scorer.mean)

    def score(self, features: Tensor, labels: Tensor) -> SampleScores:
        """Distances and difficulty of samples.

        Args:
            features: Shape (samples, dim).
            labels: Class indices; -1 where unknown, for which the nearest class is used.
                Shape (samples,).
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
