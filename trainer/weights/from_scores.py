"""Weights of training samples from a score file, joined by sample id."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.errors import ConfigError, UnmatchedScores
from difficulty_service.score_columns import require_columns
from difficulty_service.score_file import read_score_schema, read_scores
from trainer.config import ScoreWeights
from trainer.weights.formula import WeightsDistribution, describe_weights, sample_weights
from trainer.weights.joining import examples_of, positions_of, require_unique
from trainer.weights.score_source import require_reliable


@dataclass(frozen=True)
class _ScoreColumn:
    """A column of a score file.

    Attributes:
        sample_ids: Sample id of each row.
        scores: Score of each row, NaN where there is none. Shape (rows,).
        dim: Dimension of the features that the scores were computed from, if it is known.
    """

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
    change the weights.

    Args:
        sample_ids: Ids of the training samples.
        path: Score file.
        config: Column, normalisation, and handling of missing scores.
        known_ids: Ids of the whole dataset, as scores of held-out samples are no error. None is
            `sample_ids`.

    Returns:
        Weights in (0, 1), float64 in the order of `sample_ids`, of shape (samples,), and their
        distribution. With `missing = "mean"`, samples whose score is absent, null or NaN have
        the mean weight of the others.

    Raises:
        ScoreFileError: The file cannot be read, or has two scores for one sample.
        ConfigError: The file has no such score column, or no dimension of features to divide by.
        UnmatchedScores: A training sample has no score, or a score no sample, and `missing` is
            "error"; or no training sample has a score at all.
        TrainingError: A score is infinite, or the scores are marked as unreliable and `unreliable`
            is "error".
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
