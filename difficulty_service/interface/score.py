"""`score`: features and labels in memory in, scores out.

`score_dataset`: labelled images in, scores out.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, Unpack

import torch

from difficulty_service.base.analyses import ability
from difficulty_service.base.errors import CleaningError, ConfigError
from difficulty_service.features.errors_file import describe_reasons
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import Shrinkage
from difficulty_service.interface.arrays import Matrix, read_arrays
from difficulty_service.interface.image_sources import (
    LabelledImages,
    is_pairs,
    open_images,
    zip_labels,
)
from difficulty_service.interface.keywords import ImageOptions
from difficulty_service.interface.options import (
    progress_bar,
    read_options,
    require_names,
    run_of,
)
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.interface.tables import Column, Frame, to_table
from difficulty_service.marks.files import marks_of_table, read_marks
from difficulty_service.marks.record import MarkHistory, Marks
from difficulty_service.marks.review_folder import ReviewFolder
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.score_columns import DEFAULT_SCORERS
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.given_tags import open_given_tags
from difficulty_service.scoring.marked_features import apply_marks
from difficulty_service.scoring.pipeline import (
    Callbacks,
    ScoreRequest,
    features_beside,
    make_plan,
)
from difficulty_service.scoring.pipeline import score_dataset as run_pipeline
from difficulty_service.scoring.rows import require_packages
from difficulty_service.scoring.store import score_in_memory
from difficulty_service.settings.options import ScoringOptions

MarksOf: TypeAlias = str | Path | Frame
"""Marks in a file, or in a table."""


def marks_of(marks: MarksOf) -> Marks:
    """Reads marks from a file or a table."""
    if isinstance(marks, str | Path):
        return read_marks(Path(marks), ())
    return marks_of_table(to_table(marks, "the table of marks", "marks", CleaningError))


def score(  # noqa: PLR0913 - one parameter for each option
    features: Matrix,
    labels: Column,
    *,
    ids: Column = None,
    shrinkage: Shrinkage = "auto",
    matmul_dtype: str = "auto",
    scorers: Sequence[str] = DEFAULT_SCORERS,
    near_duplicates: float | None = None,
    marks: MarksOf | None = None,
) -> Scores:
    """Scores how hard each sample is, given its features and its label; larger is harder.

    Samples without a label, or with NaN or infinity among their features, are left out with a
    warning. The numbers are those of `difficulty score`, without anything being written to disk.

    Args:
        features: One row per sample: a NumPy array, a tensor on any device, a table of numbers or
            with one column of lists, as DataFrames of pandas and polars, Arrow and DuckDB have
            them, such a Series or column, or nested lists. A tensor on an NVIDIA GPU is scored
            there, with other rounding errors. float32 and float64 are computed with as they are,
            other types as float32. Shape (samples, dim).
        labels: One integer or text per sample, None or NaN where it is missing: an array, tensor,
            Series, column or list. Classes are sorted; the name of an integer is its value. Shape
            (samples,).
        ids: One unique id per sample; None for the index of a DataFrame, otherwise the numbers of
            the rows, counted from 0. Shape (samples,).
        shrinkage: `auto`, `none`, `ledoit-wolf`, `oas`, `leave-one-out`, or an intensity in [0, 1].
        matmul_dtype: `auto`, `float32` or `float64`: dtype of the matrix products.
        scorers: Some of `rmd`, `suspicion`, `agree`, `kmeans`, `knn`; the Mahalanobis columns are
            always there. Left at its default, `suspicion` is left out with a warning where there
            are more than 5,000 classes.
        near_duplicates: Smallest cosine, in (0, 1], of the features of a sample and of the near
            duplicate named in the column `near_duplicate_of`; None to look for none.
        marks: What people decided: a file or a table with the columns sample_id, mark (keep,
            relabel, drop or, of boxes, misplaced) and label (the new class). Labels follow it
            and count as right.

    Raises:
        CleaningError: The marks cannot be read, or are of other samples.
        DatasetError: Features, labels or ids cannot be read, or their numbers differ.
        ConfigError: An option is unknown or out of bounds.
        StatisticsError: The features allow no trustworthy Gaussian.
        MissingPackage: A scorer needs a package that is not installed.
    """
    options = read_options(
        ScoringOptions,
        {
            "shrinkage": shrinkage,
            "matmul_dtype": matmul_dtype,
            "near_duplicates": near_duplicates,
            # Whoever leaves the default has asked for none of them by name.
            **({} if scorers is DEFAULT_SCORERS else {"scorers": scorers}),
        },
    )
    require_packages(options)
    decided = None if marks is None else MarkHistory(later=marks_of(marks))

    def scored(*, on_gpu: bool) -> Scores:
        source: FeatureSource = read_arrays(features, labels, ids, on_gpu=on_gpu)
        if decided is not None:
            source = apply_marks(source, decided)
        return Scores(score_in_memory(source, fit_store(source, options.fit), options))

    try:
        scores = scored(on_gpu=True)
    except torch.OutOfMemoryError:
        scores = None  # what the error holds on to is released before the other attempt
    if scores is None:
        scores = scored(on_gpu=False)
        warn(["the GPU of the features has too little memory left to score them: the CPU did"])
    warn(scores.warnings)
    return scores


def score_dataset(  # noqa: PLR0913 - one parameter for each option
    images: LabelledImages,
    labels: Column = None,
    *,
    backbone: str | None = None,
    out: str | Path | None = None,
    marks: MarksOf | None = None,
    undo_round: int | None = None,
    progress: bool = True,
    **options: Unpack[ImageOptions],
) -> Scores:
    """Extracts features of images and scores them; larger is harder.

    Without labels, as in a folder of images, the score is the distance to all images, and copies
    and faults are found; `classes` or `clusters` make labels, and `unlabelled=True` ignores those
    that there are. With `tags`, wrong and missing tags are found, in the table of the images.

    Args:
        images: A path, URI or glob, as for `difficulty score`; a `datasets.Dataset`, or a
            `DatasetDict` with `split`; or a map-style Dataset of torch, list or other object
            with a length whose elements are pairs of an image and a label; or a table with a
            column of each: a DataFrame of pandas or polars, an Arrow table, a relation of DuckDB or
            a mapping of columns. Such an image is a
            PIL image, an array or tensor of integers from 0 to 255 or floats from 0 to 1, encoded
            bytes or a path; a label is an integer or text, or one-hot. With `modality="text"`, the
            samples of a table, of a Hugging Face dataset or of pairs are texts.
        labels: One label for each image, where `images` is an array or a list without them.
        backbone: Name of the backbone; `difficulty backbones` lists them. The default is that of
            the command: a CLIP, or a network of the package where its weights cannot be had, with
            a warning. `builtin`, `builtin-photos` and `builtin-text` work offline.
        out: Score file to write. The features are kept beside it, as `difficulty score` does;
            without it they are in a temporary folder until the call ends.
        marks: What people decided, as for `score`; it is remembered beside `out` and holds for
            every later run.
        undo_round: Number of a round of scores to go back to: takes back what was decided on them
            and on later ones, and keeps it in a file beside `out` that `marks` takes.
        progress: Whether to show a progress bar.
        **options: See `ImageOptions`.

    Returns:
        The scores. Images that cannot be read are listed in `bad_images`.

    Raises:
        CleaningError: The marks cannot be read, are of other samples, or have no such round.
        ConfigError: Marks are given and taken back at once, or an option is out of bounds.
        DifficultyError: As for the commands: `DatasetError`, `BackboneError`, `ImageError` with
            `on_error="stop"`, `FeatureStoreError`, `StatisticsError`, `MissingPackage`.
    """
    require_names(options, ImageOptions, "score_dataset")
    usual = {"resume": not is_pairs(images), "backbone": backbone}
    run = run_of({**usual, **options}, labels=labels, marks=marks, undo_round=undo_round)
    scoring = run.scoring
    if scoring.tags is not None:
        _require_file(images)
    plan = make_plan(run)
    if labels is not None:
        images = zip_labels(images, labels)
    dataset, warnings = open_images(images, plan.dataset)
    tags = open_given_tags(str(images), scoring, plan.dataset)
    with ExitStack() as stack:
        if out is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="difficulty-"))
            out = Path(folder, "scores.parquet")
        out = Path(out)
        plan = replace(plan, location=dataset.location, out=features_beside(out, scoring))
        update = stack.enter_context(progress_bar(shown=progress))
        callbacks = Callbacks(update, settled=lambda settled: warnings.extend(settled.warnings))
        judged = None
        if tags is None:
            later = None if marks is None else marks_of(marks)
            review = ReviewFolder(out).open(later, undo_round)
            scoring_request = ScoreRequest(out, scoring, review=review)
            extracted = run_pipeline(plan, scoring_request, callbacks, dataset).extracted
        else:
            judged = ability("tags", "judge")(plan, tags, out, callbacks, dataset)
            extracted = judged.extracted
        scores = Scores(read_scores(out), extracted.bad_images)
    if scores.bad_images.num_rows:
        warnings.append(
            f"{scores.bad_images.num_rows:,} of {extracted.num_samples:,} {dataset.noun}s "
            "could not be read; bad_images lists each with its reason: "
            + "; ".join(describe_reasons(extracted.bad_images, dataset.noun))
        )
    if judged is not None:
        scores.tags = judged.found.tags
        warnings += judged.found.warnings
    scores.warnings = (*warnings, *scores.warnings)
    warn(scores.warnings)
    return scores


def _require_file(images: LabelledImages) -> None:
    """Refuses images that cannot have tags."""
    if not isinstance(images, str | Path):
        raise ConfigError(
            f"tags are in a table that is a file, and the images are of type "
            f"{type(images).__name__}",
            "pass the path of the table, or features and lists of tags to `ds.tags`",
            parameter="tags",
        )
