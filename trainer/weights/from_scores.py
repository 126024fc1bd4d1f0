"""Weights and difficulty of training samples, from the scores of one column of a score file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import ConfigError, UnmatchedScores
from difficulty_service.scores.file import OpenScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import require_columns
from trainer.config import ScoreWeights
from trainer.data.splits import are_numbers
from trainer.samples import Samples
from trainer.weights.formula import WeightsDistribution, describe_weights, sample_weights
from trainer.weights.score_files import (
    describe_other_labels,
    examples_of,
    positions_of,
    require_reliable,
    texts_at,
    unique_ids,
)

LABEL_NAME = "label_name"


@dataclass(frozen=True)
class _ScoreColumn:
    """A column of a score file."""

    sample_ids: pa.Array
    scores: NDArray[np.float64]
    provenance: Provenance


@dataclass(frozen=True)
class _JoinedScores:
    """Scores in the order of the training samples, and the ids that did not match.

    Attributes:
        scores: Score of each sample, NaN where there is none. Shape (samples,).
        absent: Ids of training samples that are not in the file.
        empty: Ids of training samples whose score is null or NaN.
    """

    scores: NDArray[np.float64]
    absent: pa.Array
    empty: pa.Array
    surplus: pa.Array


def weights_of_samples(
    sample_ids: Sequence[str],
    scores: OpenScoreFile,
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
    path = scores.path
    column = _read_column(scores, config.column, "regulariser.column")
    if config.unreliable == "error":
        require_reliable(column.provenance, path, ', or set regulariser.unreliable = "allow"')
    joined = _join(column, sample_ids, known_ids)
    _check_matched(joined, path, config)
    if config.normalise == "per_dimension" and column.provenance.feature_dim is None:
        raise ConfigError(
            f"{path} does not say how many numbers a feature vector has, which "
            'normalise = "per_dimension" divides by',
            "choose another normalise, or the score file as it was written",
            parameter="normalise",
        )
    has_score = torch.from_numpy(~np.isnan(joined.scores))
    known_weights = sample_weights(
        torch.from_numpy(joined.scores)[has_score],
        normalise=config.normalise,
        score_temperature=config.score_temperature,
        c=config.c,
        winsorise=config.winsorise,
        dim=column.provenance.feature_dim,
    )
    # By rounding, a mean can lie outside the range of its values.
    mean = known_weights.mean().clamp(known_weights.min(), known_weights.max())
    weights = mean.repeat(len(has_score))
    weights[has_score] = known_weights
    missing = len(joined.absent) + len(joined.empty)
    return weights, describe_weights(weights, missing=missing, surplus=len(joined.surplus))


def difficulty_of_samples(
    sample_ids: Sequence[str],
    scores: OpenScoreFile,
    column: str,
    *,
    known_ids: Sequence[str] | None = None,
) -> Tensor:
    """Reads the difficulty of each training sample; larger is harder.

    Returns:
        A column of the score file, float64 in the order of `sample_ids`. Shape (samples,).

    Raises:
        ConfigError: The file has no such scores.
        TrainingError: The scores are marked as unreliable.
        UnmatchedScores: A sample has no score; or a score no sample, not even one whose id is
            known.
    """
    read = _read_column(scores, column, "sampling.column")
    require_reliable(read.provenance, scores.path)
    joined = _join(read, sample_ids, known_ids)
    _check_matched(joined, scores.path, ScoreWeights(column=column), may_lack=False)
    return torch.from_numpy(joined.scores)


def warn_of_other_labels(samples: Samples, scores: OpenScoreFile) -> tuple[str, ...]:
    """A sentence where training samples have another label than the one whose difficulty is known.

    None where the classes have names in the file or in the dataset alone.
    """
    if LABEL_NAME not in scores.schema.names:
        return ()
    table = scores.read(["sample_id", LABEL_NAME])
    ids = pa.array(list(samples.sample_ids), pa.large_string())
    scored = texts_at(table[LABEL_NAME], positions_of(ids, unique_ids(table, scores.path)))
    names = [name for name in scored if name is not None]
    if are_numbers(names) != are_numbers(samples.class_names):
        return ()
    return tuple(
        f"{problem}; a score is the difficulty of a sample with its label: score the training "
        "dataset again if this is not intended"
        for problem in describe_other_labels(samples, scored, scores.path)
    )


def _read_column(file: OpenScoreFile, name: str, key: str) -> _ScoreColumn:
    types = dict(zip(file.schema.names, file.schema.types, strict=True))
    require_columns([name], file.schema.names, str(file.path), ConfigError)
    if not pa.types.is_floating(types[name]):
        raise _no_scores(file, name, key, "is not a column of scores")
    table = file.read(["sample_id", name])
    if table[name].null_count == len(table):
        raise _no_scores(file, name, key, "is empty")
    scores = table[name].cast(pa.float64()).to_numpy()
    return _ScoreColumn(unique_ids(table, file.path), scores, file.provenance)


def _no_scores(file: OpenScoreFile, name: str, key: str, reason: str) -> ConfigError:
    """The error about a column without scores, which names those that have some."""
    numeric = [field.name for field in file.schema if pa.types.is_floating(field.type)]
    table = file.read(numeric)
    filled = [column for column in numeric if table[column].null_count < len(table)]
    return ConfigError(
        f"{key} {name!r} {reason} in {file.path}",
        f"choose one of {filled}, or score again so that it is filled",
    )


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


def _check_matched(
    joined: _JoinedScores, path: Path, config: ScoreWeights, *, may_lack: bool = True
) -> None:
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
    if missing < total and may_lack:
        remedy += ', or set regulariser.missing = "mean" to give samples without a score the mean '
        remedy += "weight and to ignore scores without a sample"
    raise UnmatchedScores(f"{path} does not fit the dataset: {'; '.join(problems)}", remedy)
