"""From a feature store and Gaussians to a score file, a few thousand rows at a time."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from difficulty_service.feature_store.store import SCORED_KEYS, FeatureStore
from difficulty_service.files.arrow_columns import to_numpy
from difficulty_service.score_file import write_scores
from difficulty_service.scoring.duplicates import Duplicates, find_duplicates
from difficulty_service.scoring.extremes import Extremes
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.ranking import UnrankedScores, unranked_scores
from difficulty_service.scoring.row_counts import RowCounts, row_warnings
from difficulty_service.scoring.same_features import are_same_samples, require_same_features
from difficulty_service.scoring.score_rows import HASH_COLUMN, Classes, match_classes, score_rows
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
        num_compared: Number of rows that are compared with other classes, by a label margin.
        num_doubtful: Number of rows that look more like another class: label margin above 0.
        num_duplicates: Number of rows whose features are those of an earlier row.
        warnings: Warnings for the reader of the scores, one sentence each.
        hardest: The hardest samples, from hard to easy: sample_id, label_name, rmd.
        easiest: The easiest samples, from hard to easy.
        doubtful: The samples that look most like another class than their own, the clearest
            first: sample_id, label_name, nearest_label_name, label_margin.
    """

    num_samples: int
    num_scored: int
    num_compared: int
    num_doubtful: int
    num_duplicates: int
    warnings: tuple[str, ...]
    hardest: pa.Table
    easiest: pa.Table
    doubtful: pa.Table


def score_store(
    store: FeatureStore, fitted: FittedGaussians, scorers: Sequence[str], out: Path
) -> ScoreSummary:
    """Scores a store and writes the score file, in memory that does not grow with the store.

    Args:
        store: A complete store.
        fitted: Gaussians fitted to this store or to another one.
        scorers: Some of `rmd`, `kmeans` and `knn`; the Mahalanobis columns are always there.
        out: Score file to write; its folder also holds the unranked scores meanwhile.

    Raises:
        FeatureStoreError: The description of the store lacks a key.
        ScoreFileError: The score file cannot have this name.
        StatisticsError: The Gaussians were fitted to another kind of features.
    """
    store.require_keys(SCORED_KEYS)
    require_same_features(store.description, fitted.description)
    classes = match_classes(store.class_names, fitted.description["class_names"])
    left_out = are_same_samples(store.description, fitted.description)
    extremes = Extremes(EXTREMES_KEPT)
    counts = RowCounts()
    hashes = bytearray()
    with unranked_scores(out.parent) as unranked:
        for batch in score_rows(store, fitted.gaussians, classes, scorers, left_out=left_out):
            counts.update(batch)
            unranked.append(_take_hashes(batch, hashes))
        duplicates = find_duplicates(store, np.frombuffer(hashes, np.uint64))
        counts.duplicates = len(duplicates.positions)
        warnings = [
            *fitted.gaussians.warnings,
            *row_warnings(counts, classes, store.class_names, duplicates),
        ]
        description = provenance(store, fitted, classes, counts, warnings)
        write_scores(out, _complete_tables(unranked, duplicates, extremes), description)
    return ScoreSummary(
        num_samples=counts.samples,
        num_scored=counts.scored,
        num_compared=counts.compared,
        num_doubtful=counts.doubtful,
        num_duplicates=counts.duplicates,
        warnings=tuple(warnings),
        hardest=extremes.hardest,
        easiest=extremes.easiest,
        doubtful=extremes.doubtful,
    )


def _take_hashes(batch: pa.RecordBatch, hashes: bytearray) -> pa.RecordBatch:
    """Moves the hashes of the features from a batch, which may have none, to `hashes`."""
    if HASH_COLUMN not in batch.schema.names:
        return batch
    hashes += to_numpy(batch[HASH_COLUMN]).tobytes()
    return batch.drop_columns([HASH_COLUMN])


def provenance(
    store: FeatureStore,
    fitted: FittedGaussians,
    classes: Classes,
    counts: RowCounts,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The metadata of a score file: where the scores came from and how they were computed."""
    gaussians, fitted_on = fitted.gaussians, fitted.description
    return {
        **{key: value for key, value in store.description.items() if key != "num_shards"},
        "class_names": list(classes.names),
        "fitted_on": {key: fitted_on[key] for key in ("dataset", "fingerprint", "num_samples")},
        "shrinkage": gaussians.options.shrinkage,
        "products": gaussians.options.matmul_dtype,
        "reliable": gaussians.reliable,
        **_describe_factor("within", gaussians.within),
        **_describe_factor("agnostic", gaussians.agnostic),
        "num_scored": counts.scored,
        "num_doubtful": counts.doubtful,
        "num_duplicates": counts.duplicates,
        "num_bad_images": int(store.description["num_samples"]) - counts.samples,
        "warnings": list(warnings),
    }


def _describe_factor(name: str, factor: Factor) -> dict[str, Any]:
    """One covariance; a singular one has no condition number that JSON can hold."""
    return {
        f"{name}_intensity": factor.intensity,
        f"{name}_ridge": factor.ridge,
        f"{name}_condition": factor.condition if math.isfinite(factor.condition) else None,
        f"{name}_rank": factor.rank,
    }


def _complete_tables(
    unranked: UnrankedScores, duplicates: Duplicates, extremes: Extremes
) -> Iterator[pa.Table]:
    """The row groups of a score file with all columns; `extremes` sees each of them."""
    start = 0
    for table in grouped(unranked.ranked(), ROWS_PER_GROUP):
        table = table.append_column("duplicate_of", duplicates.column(start, len(table)))
        start += len(table)
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
