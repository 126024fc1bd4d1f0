"""What scores the labels of a feature store, fitted to the store itself."""

from collections.abc import Sequence

import torch

from difficulty_service.feature_store.source import FeatureSource
from difficulty_service.scorers.suspicion import (
    POSTERIORS,
    LabelPosteriors,
    PosteriorOptions,
    fit_posteriors,
)
from difficulty_service.scoring.fit_store import StoreChunks


def fit_store_posteriors(
    store: FeatureSource, scorers: Sequence[str], matmul_dtype: torch.dtype
) -> LabelPosteriors | None:
    """Fits the scorers of labels among `scorers`; None where there are none.

    They are fitted to the samples that they score, also where Gaussians of other samples are given.
    The memory does not grow with the store.

    Args:
        store: A complete store.
        scorers: Names of scorers.
        matmul_dtype: dtype of the matrix products.

    Raises:
        StatisticsError: All features are the same, or a feature is not finite.
    """
    names = tuple(name for name in POSTERIORS if name in scorers)
    if not names:
        return None
    options = PosteriorOptions(
        names=names,
        num_classes=len(store.class_names),
        runs=store.runs,
        matmul_dtype=matmul_dtype,
        seed=store.description.seed,
    )
    return fit_posteriors(StoreChunks(store), options)
