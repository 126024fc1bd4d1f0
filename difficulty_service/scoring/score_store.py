"""From a feature store and Gaussians to a score file, a few thousand rows at a time."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.feature_store.source import FeatureSource
from difficulty_service.files.arrow_columns import to_numpy
from difficulty_service.score_file import ScoreFile, to_schema, write_scores
from difficulty_service.scoring.extremes import Extremes
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.ranking import UnrankedScores, unranked_scores, with_percentiles
from difficulty_service.scoring.same_features import are_same_samples, require_same_features
from difficulty_service.scoring.score_rows import Classes, match_classes, score_rows
from difficulty_service.statistics.factor import Factor

ROWS_PER_GROUP = 1 << 16
"""Rows of a row group of the score file."""

EXTREMES_KEPT = 20
"""Number of samples at each end that the summary of a score file holds."""


@dataclass(frozen=True)
class ScoreSummary:
    """Summary of a score file.

    Attributes:
        num_samples: Number of rows of the score file.
        num_scored: Number of rows that have an RMD.
        warnings: Warnings for the reader of the scores, one sentence each.
        hardest: The hardest samples, from hard to easy: sample_id, label_name, rmd.
        easiest: The easiest samples, from hard to easy.
    """

    num_samples: int
    num_scored: int
    warnings: tuple[str, ...]
    hardest: pa.Table
    easiest: pa.Table


@dataclass
class Counts:
    """Counts over the rows of a score file.

    Attributes:
        samples: Number of rows.
        scored: Number of rows that have an RMD.
        labels: Labels that occur.
    """

    samples: int = 0
    scored: int = 0
    labels: set[int] = field(default_factory=set)

    def update(self, batch: pa.RecordBatch) -> None:
        """Counts the rows of a batch."""
        self.samples += len(batch)
        self.scored += len(batch) - batch["rmd"].null_count
        self.labels.update(pc.unique(batch["label"]).to_pylist())


def score_store(
    store: FeatureSource, fitted: FittedGaussians, scorers: Sequence[str], out: Path
) -> ScoreSummary:
    """Scores a store and writes the score file, in memory that does not grow with the store.

    Args:
        store: A complete store.
        fitted: Gaussians fitted to this store or to another one.
        scorers: Some of `rmd`, `kmeans` and `knn`; the Mahalanobis columns are always there.
        out: Score file to write; its folder also holds the unranked scores meanwhile.

    Raises:
        StatisticsError: The Gaussians were fitted to another kind of features.
    """
    extremes = Extremes(EXTREMES_KEPT)
    counts = Counts()
    with unranked_scores(out.parent) as unranked:
        classes, batches = _scored_batches(store, fitted, scorers, counts)
        for batch in batches:
            unranked.append(batch)
        description = provenance(store, fitted, classes, counts)
        write_scores(out, _ranked_tables(unranked, extremes), description)
    warnings = tuple(description["warnings"])
    return ScoreSummary(counts.samples, counts.scored, warnings, extremes.hardest, extremes.easiest)


def score_in_memory(
    store: FeatureSource, fitted: FittedGaussians, scorers: Sequence[str]
) -> ScoreFile:
    """Like `score_store`, with the contents of the score file as the result.

    Raises:
        StatisticsError: As for `score_store`.
    """
    counts = Counts()
    classes, scored = _scored_batches(store, fitted, scorers, counts)
    batches = list(scored)
    ordered = np.concatenate([to_numpy(batch["rmd"].drop_null()) for batch in batches])
    ordered.sort()
    table = pa.Table.from_batches(with_percentiles(batches, ordered))
    return ScoreFile(to_schema(table), provenance(store, fitted, classes, counts))


def _scored_batches(
    store: FeatureSource, fitted: FittedGaussians, scorers: Sequence[str], counts: Counts
) -> tuple[Classes, Iterator[pa.RecordBatch]]:
    """The classes and the rows of a score file; the rows are counted as they are taken."""
    require_same_features(store.description, fitted.description)
    classes = match_classes(store.class_names, fitted.description["class_names"])
    left_out = are_same_samples(store.description, fitted.description)

    def count_rows() -> Iterator[pa.RecordBatch]:
        for batch in score_rows(store, fitted.gaussians, classes, scorers, left_out=left_out):
            counts.update(batch)
            yield batch

    return classes, count_rows()


def provenance(
    store: FeatureSource, fitted: FittedGaussians, classes: Classes, counts: Counts
) -> dict[str, Any]:
    """The metadata of a score file: where the scores came from and how they were computed."""
    gaussians, fitted_on = fitted.gaussians, fitted.description
    return {
        **{key: value for key, value in store.description.items() if key != "num_shards"},
        "fitted_on": {key: fitted_on[key] for key in ("dataset", "fingerprint", "num_samples")},
        "shrinkage": gaussians.options.shrinkage,
        "products": gaussians.options.matmul_dtype,
        "reliable": gaussians.reliable,
        "unit_length": gaussians.centre is not None,
        **_describe_factor("within", gaussians.within),
        **_describe_factor("agnostic", gaussians.agnostic),
        "num_scored": counts.scored,
        "num_bad_images": int(store.description["num_samples"]) - counts.samples,
        "warnings": [*store.warnings, *fitted.gaussians.warnings, *_warnings(counts, classes)],
    }


def _describe_factor(name: str, factor: Factor) -> dict[str, Any]:
    """One covariance; a singular one has no condition number that JSON can hold."""
    return {
        f"{name}_intensity": factor.intensity,
        f"{name}_ridge": factor.ridge,
        f"{name}_condition": factor.condition if math.isfinite(factor.condition) else None,
        f"{name}_rank": factor.rank,
    }


def _ranked_tables(unranked: UnrankedScores, extremes: Extremes) -> Iterator[pa.Table]:
    """The row groups of a score file; `extremes` sees each of them."""
    for table in grouped(unranked.ranked(), ROWS_PER_GROUP):
        extremes.update(table)
        yield table


def grouped(batches: Iterable[pa.RecordBatch], num_rows: int) -> Iterator[pa.Table]:
    """Joins consecutive batches into tables of at least `num_rows` rows; the last may be short."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= num_rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _warnings(counts: Counts, classes: Classes) -> list[str]:
    """Sentences about samples without scores."""
    sentences = []
    unfitted = sorted(label for label in counts.labels if label >= classes.num_fitted)
    if unfitted:
        names = ", ".join(classes.names[label] for label in unfitted[:5])
        more = f" and {len(unfitted) - 5} more" if len(unfitted) > 5 else ""  # noqa: PLR2004
        sentences.append(
            f"samples of classes that the Gaussians were not fitted to have no score: {names}{more}"
        )
    if counts.scored < counts.samples:
        without = counts.samples - counts.scored
        sentences.append(f"{without:,} of {counts.samples:,} samples have no score")
    return sentences
