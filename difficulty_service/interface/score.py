"""`score`: features and labels in memory in, scores out.

`score_dataset`: labelled images in, scores out.
"""

import tempfile
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from difficulty_service.extraction.precision import settle_precision
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.gaussians.fit_options import Shrinkage
from difficulty_service.interface.arrays import Column, Matrix, read_arrays
from difficulty_service.interface.image_options import (
    ImageOptions,
    dataset_options,
    extract_options,
    network_options,
    progress_bar,
    require_bounds,
    require_names,
)
from difficulty_service.interface.image_sources import LabelledImages, is_pairs, open_images
from difficulty_service.interface.options import fit_options, scorer_names
from difficulty_service.interface.scores import Scores
from difficulty_service.pipeline import Callbacks, ExtractRequest, ScoreRequest
from difficulty_service.pipeline import score_dataset as run_pipeline
from difficulty_service.scorers.near_duplicates import require_threshold
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.fit_store import fit_store
from difficulty_service.scores.rows import require_packages
from difficulty_service.scores.store import score_in_memory

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


def score_dataset(
    images: LabelledImages,
    *,
    backbone: str | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    **options: Unpack[ImageOptions],
) -> Scores:
    """Extracts features of labelled images and scores them; larger is harder.

    Args:
        images: A path, URI or glob, as for `difficulty score`; a `datasets.Dataset`, or a
            `DatasetDict` with `split`; or a map-style Dataset of torch, list or other object
            with a length whose elements are pairs of an image and a label. Such an image is a PIL
            image, a uint8 array or tensor, encoded bytes or a path; a label is an integer or text.
            With `modality="text"`, the samples of a table, of a Hugging Face dataset or of pairs
            are texts.
        backbone: Name of the backbone; `difficulty backbones` lists them. The default, `builtin`,
            or `builtin-text` for texts, works offline and is small; others tell photographs apart
            better.
        out: Score file to write. The features are kept beside it, as `difficulty score` does;
            without it they are in a temporary folder until the call ends.
        progress: Whether to show a progress bar.
        **options: See `ImageOptions`.

    Returns:
        The scores. Images that cannot be read are listed in `bad_images`.

    Raises:
        DifficultyError: As for the commands: `DatasetError`, `BackboneError`, `ImageError` with
            `on_error="stop"`, `FeatureStoreError`, `StatisticsError`, `MissingPackage`.
    """
    require_names(options, ImageOptions, "score_dataset")
    scorers = scorer_names(options.get("scorers", ("rmd",)))
    fit = fit_options(options.get("shrinkage", "auto"), options.get("matmul_dtype", "auto"))
    require_bounds(options)
    dataset, warnings = open_images(images, dataset_options(options))
    with ExitStack() as stack:
        if out is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="difficulty-"))
            out = Path(folder, "scores.parquet")
        request = ExtractRequest(
            location=dataset.location,
            out=Path(out).with_suffix(".features"),
            backbone=backbone or ("builtin" if dataset.modality == "image" else "builtin-text"),
            dataset=dataset_options(options),
            network=network_options(options),
            options=extract_options(options),
            resume=options.get("resume", not is_pairs(images)),
        )
        settled = settle_precision(
            ExtractionTask(dataset, request.backbone, request.network, request.options),
            request.out if request.resume else None,
        )
        request = replace(request, network=settled.network, options=settled.options)
        update = stack.enter_context(progress_bar(dataset.modality, shown=progress))
        scoring = ScoreRequest(
            Path(out), scorers, fit, near_duplicates=options.get("near_duplicates")
        )
        extracted = run_pipeline(request, scoring, Callbacks(update), dataset).extracted
        scores = Scores(read_scores(Path(out)), extracted.bad_images)
    if scores.bad_images.num_rows:
        warnings.append(
            f"{scores.bad_images.num_rows:,} of {extracted.num_samples:,} {dataset.modality}s "
            "could not be read; bad_images lists each with its reason"
        )
    scores.warnings = (*warnings, *scores.warnings)
    warn(scores.warnings)
    return scores
