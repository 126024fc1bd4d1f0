"""`score`: features and labels in memory in, scores out."""

import warnings
from collections.abc import Sequence

from difficulty_service.interface.arrays import Column, Matrix
from difficulty_service.interface.labelled_arrays import read_arrays
from difficulty_service.interface.options import fit_options, scorer_names
from difficulty_service.interface.scores import Scores
from difficulty_service.scorers.near_duplicates import require_threshold
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.score_rows import require_packages
from difficulty_service.scoring.score_store import score_in_memory
from difficulty_service.statistics.fit_options import Shrinkage

CALLER = 3
"""Frames between a warning and the caller of the interface."""


def score(  # noqa: PLR0913 - one parameter for each option
    features: Matrix,
    labels: Column,
    *,
    ids: Column = None,
    shrinkage: Shrinkage = "auto",
    matmul_dtype: str = "auto",
    scorers: Sequence[str] = ("rmd",),
    near_duplicates: float | None = None,
) -> Scores:
    """Scores how hard each sample is, given its features and its label; larger is harder.

    Samples without a label, or with NaN or infinity among their features, are left out with a
    warning. The numbers are those of `difficulty score`, without anything being written to disk.

    Args:
        features: One row per sample: a NumPy array, a tensor on any device, a pandas DataFrame of
            numbers, an Arrow table or column of vectors, or nested lists. float32 and float64 are
            computed with as they are, other types as float32. Shape (samples, dim).
        labels: One integer or text per sample, None or NaN where it is missing: an array, tensor,
            Series, Arrow column or list. Classes are sorted; the name of an integer is its value.
            Shape (samples,).
        ids: One unique id per sample; None for the index of a DataFrame, otherwise the numbers of
            the rows, counted from 0. Shape (samples,).
        shrinkage: `auto`, `none`, `ledoit-wolf`, `oas`, `leave-one-out`, or an intensity in [0, 1].
        matmul_dtype: `auto`, `float32` or `float64`: dtype of the matrix products.
        scorers: Some of `rmd`, `kmeans`, `knn`, `suspicion`, `agree`; the Mahalanobis columns are
            always there.
        near_duplicates: Smallest cosine, in (0, 1], of the features of a sample and of the near
            duplicate named in the column `near_duplicate_of`; None to look for none.

    Raises:
        DatasetError: Features, labels or ids cannot be read, or their numbers differ.
        StatisticsError: An option is unknown, or the features allow no trustworthy Gaussian.
        MissingPackage: A scorer needs a package that is not installed.
    """
    options, names = fit_options(shrinkage, matmul_dtype), scorer_names(scorers)
    require_threshold(near_duplicates)
    require_packages(names, near_duplicates)
    source = read_arrays(features, labels, ids)
    fitted = fit_store(source, options)
    scores = Scores(score_in_memory(source, fitted, names, near_duplicates))
    warn(scores.warnings)
    return scores


def warn(sentences: Sequence[str]) -> None:
    """Issues each sentence as a warning of Python, at the line that called the interface."""
    for sentence in sentences:
        warnings.warn(sentence, UserWarning, stacklevel=CALLER)
