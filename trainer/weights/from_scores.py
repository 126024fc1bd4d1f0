"""Weights of training samples from a score file, joined by sample id.

Joins samples to the rows of a score file by their ids.

Which scores the weights of a run were made from, and whether these are reliable.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import (
    ConfigError,
    ScoreFileError,
    TrainingError,
    UnmatchedScores,
)
from difficulty_service.scores.columns import require_columns, scorer_of
from difficulty_service.scores.file import read_score_schema, read_scores
from difficulty_service.scores.provenance import Provenance
from trainer.config import ScoreWeights
from trainer.weights.formula import WeightsDistribution, describe_weights, sample_weights

EXAMPLES = 3
"""Number of ids that a message names."""


def require_unique(sample_ids: pa.Array, path: Path) -> None:
    """Raises ScoreFileError where a score file, named for the message, has an id twice."""
    first = positions_of(sample_ids, sample_ids)
    repeated = np.flatnonzero(first != np.arange(len(first)))
    if len(repeated):
        raise ScoreFileError(
            f"{path} has more than one score for {len(repeated):,} sample ids, "
            f"{examples_of(sample_ids.take(pa.array(repeated)))}",
            "score again",
        )


def positions_of(sample_ids: pa.Array, among: pa.Array) -> NDArray[np.int64]:
    """First position of each id among others, -1 if it is absent. Shape (ids,)."""
    positions = pc.fill_null(pc.index_in(sample_ids, value_set=among), -1)
    return positions.to_numpy().astype(np.int64)


def examples_of(sample_ids: pa.Array) -> str:
    """The first ids of some, as a clause."""
    examples = sample_ids[:EXAMPLES].to_pylist()
    return f"for example {', '.join(map(repr, examples))}"


def require_reliable(provenance: Provenance, path: Path, config: ScoreWeights) -> None:
    """Refuses scores that were marked as unreliable when they were written."""
    if provenance.reliable is not False or config.unreliable == "allow":
        return
    raise TrainingError(
        f"the scores of {path} are marked as unreliable: there are fewer samples than a feature "
        "vector has numbers, and no shrinkage",
        "score again with `difficulty score --shrinkage auto`, or set regulariser.unreliable = "
        '"allow"',
    )


def describe_scores(path: Path, column: str) -> dict[str, Any]:
    """The identity of the scores that weights are made from, as JSON values; None is not known."""
    provenance = read_scores(path, ["sample_id"]).provenance
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "file": str(path),
        "sha256": digest,
        "column": column,
        "scorer": scorer_of(column),
        "reliable": provenance.reliable,
        "dataset": provenance.dataset,
        "fingerprint": provenance.fingerprint,
        "backbone": provenance.backbone,
        "weights_sha256": provenance.weights_sha256,
        "feature_dim": provenance.feature_dim,
        "shrinkage": provenance.shrinkage,
    }


@dataclass(frozen=True)
class _ScoreColumn:
    """A column of a score file."""

    sample_ids: pa.Array
    scores: NDArray[np.float64]
    dim: int | None


@dataclass(frozen=True)
class _JoinedScores:
    """Scores in the order of the training samples, and the ids that did not match.

    Attributes:
        scores: Score of each sample, NaN where there is none. Shape (samples,).
        absent: Ids of training samples that are not in the file.
        empty: Ids of training samples whose score is null or NaN.
        surplus: Ids in the file that belong to no sample.
    """

    scores: NDArray[np.float64]
    absent: pa.Array
    empty: pa.Array
    surplus: pa.Array


def weights_of_samples(
    sample_ids: Sequence[str],
    path: Path,
    config: ScoreWeights,
    *,
    known_ids: Sequence[str] | None = None,
) -> tuple[Tensor, WeightsDistribution]:
    """Computes the weight of each training sample from its score.

    Only the scores of training samples are used for normalisation, so that held-out samples do not
    change the weights; with their ids known, their scores are no error either.

    Returns:
        Weights in (0, 1), float64 in the order of `sample_ids`, of shape (samples,), and their
        distribution. With `missing = "mean"`, samples whose score is absent, null or NaN have
        the mean weight of the others.
    """
    column = _read_column(path, config)
    joined = _join(column, sample_ids, known_ids)
    _check_matched(joined, path, config)
    has_score = torch.from_numpy(~np.isnan(joined.scores))
    known_weights = sample_weights(
        torch.from_numpy(joined.scores)[has_score],
        normalise=config.normalise,
        score_temperature=config.score_temperature,
        c=config.c,
        winsorise=config.winsorise,
        dim=column.dim,
    )
    # By rounding, a mean can lie outside the range of its values.
    mean = known_weights.mean().clamp(known_weights.min(), known_weights.max())
    weights = mean.repeat(len(has_score))
    weights[has_score] = known_weights
    missing = len(joined.absent) + len(joined.empty)
    return weights, describe_weights(weights, missing=missing, surplus=len(joined.surplus))


def _read_column(path: Path, config: ScoreWeights) -> _ScoreColumn:
    name = config.column
    schema = read_score_schema(path)
    require_columns([name], schema.names, str(path), ConfigError)
    numeric = [field.name for field in schema if pa.types.is_floating(field.type)]
    file = read_scores(path, ["sample_id", *numeric])
    require_reliable(file.provenance, path, config)
    filled = [column for column in numeric if file.table[column].null_count < len(file.table)]
    if name not in filled:
        reason = "is empty" if name in numeric else "is not a column of scores"
        raise ConfigError(
            f"regulariser.column {name!r} {reason} in {path}",
            f"choose one of {filled}, or score again so that it is filled",
        )
    sample_ids = pa.chunked_array(file.table["sample_id"]).cast(pa.large_string()).combine_chunks()
    require_unique(sample_ids, path)
    scores = file.table[name].cast(pa.float64()).to_numpy()
    return _ScoreColumn(sample_ids, scores, file.provenance.feature_dim)


def _join(
    column: _ScoreColumn, sample_ids: Sequence[str], known_ids: Sequence[str] | None
) -> _JoinedScores:
    requested = pa.array(list(sample_ids), pa.large_string())
    positions = positions_of(requested, column.sample_ids)
    # An id that is not in the file has position -1, the NaN at the end.
    scores = np.append(column.scores, np.nan)[positions]
    surplus = column.sample_ids.filter(pc.invert(pc.is_in(column.sample_ids, value_set=requested)))
    if known_ids is not None:
        known = pa.array(list(known_ids), pa.large_string())
        surplus = surplus.filter(pc.invert(pc.is_in(surplus, value_set=known)))
    return _JoinedScores(
        scores=scores,
        absent=requested.filter(pa.array(positions < 0)),
        empty=requested.filter(pa.array((positions >= 0) & np.isnan(scores))),
        surplus=surplus,
    )


def _check_matched(joined: _JoinedScores, path: Path, config: ScoreWeights) -> None:
    total, column = len(joined.scores), config.column
    missing = len(joined.absent) + len(joined.empty)
    strict = config.missing == "error"
    if missing < total and not (strict and (missing or len(joined.surplus))):
        return
    problems = [
        f"{len(ids):,} {problem}, {examples_of(ids)}"
        for ids, problem in (
            (joined.absent, f"of {total:,} training samples are not in it"),
            (joined.empty, f"of {total:,} training samples have no value in {column!r}"),
            (joined.surplus, "of its scores belong to no sample of the dataset"),
        )
        if len(ids)
    ]
    remedy = "score the training dataset"
    if missing < total:
        remedy += ', or set regulariser.missing = "mean" to give samples without a score the mean '
        remedy += "weight and to ignore scores without a sample"
    raise UnmatchedScores(f"{path} does not fit the dataset: {'; '.join(problems)}", remedy)
