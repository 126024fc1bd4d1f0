"""Weights of training samples, and how far their labels are trusted, from a score file.

Samples are joined to the rows of a score file by their ids. A score file with suspicion holds the
probability that each label is right and the likeliest other class. Either can tell the loss which
labels not to believe.
"""

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
from difficulty_service.base.files import file_sha256
from difficulty_service.marks.record import MARK_COLUMN
from difficulty_service.scores.file import read_score_schema, read_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES, require_columns, scorer_of
from trainer.config import LossConfig, ScoreWeights
from trainer.samples import Samples
from trainer.weights.formula import WeightsDistribution, describe_weights, sample_weights

EXAMPLES = 3
"""Number of ids that a message names."""


def unique_ids(table: pa.Table, path: Path) -> pa.Array:
    """The ids of a score file; raises ScoreFileError where it has one twice."""
    sample_ids = pa.chunked_array(table["sample_id"]).cast(pa.large_string()).combine_chunks()
    first = positions_of(sample_ids, sample_ids)
    repeated = np.flatnonzero(first != np.arange(len(first)))
    if len(repeated):
        raise ScoreFileError(
            f"{path} has more than one score for {len(repeated):,} sample ids, "
            f"{examples_of(sample_ids.take(pa.array(repeated)))}",
            "score again",
        )
    return sample_ids


def positions_of(sample_ids: pa.Array, among: pa.Array) -> NDArray[np.int64]:
    """First position of each id among others, -1 if it is absent. Shape (ids,)."""
    positions = pc.fill_null(pc.index_in(sample_ids, value_set=among), -1)
    return positions.to_numpy().astype(np.int64)


def examples_of(sample_ids: pa.Array) -> str:
    """The first ids of some, as a clause."""
    examples = sample_ids[:EXAMPLES].to_pylist()
    return f"for example {', '.join(map(repr, examples))}"


def require_reliable(provenance: Provenance, path: Path, way_out: str = "") -> None:
    """Refuses scores that were marked as unreliable when they were written."""
    if provenance.reliable is not False:
        return
    raise TrainingError(
        f"the scores of {path} are marked as unreliable: there are fewer samples than a feature "
        "vector has numbers, and no shrinkage",
        f"score again with `difficulty score --shrinkage auto`{way_out}",
    )


def describe_scores(path: Path, column: str) -> dict[str, Any]:
    """The identity of the scores that weights are made from, as JSON values; None is not known."""
    provenance = read_scores(path, ["sample_id"]).provenance
    return {
        "file": str(path),
        "sha256": file_sha256(path),
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
    column = _read_column(path, config.column, "regulariser.column")
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
    path: Path,
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
    read = _read_column(path, column, "sampling.column")
    require_reliable(read.provenance, path)
    joined = _join(read, sample_ids, known_ids)
    _check_matched(joined, path, ScoreWeights(column=column), may_lack=False)
    return torch.from_numpy(joined.scores)


def _read_column(path: Path, name: str, key: str) -> _ScoreColumn:
    schema = read_score_schema(path)
    require_columns([name], schema.names, str(path), ConfigError)
    numeric = [field.name for field in schema if pa.types.is_floating(field.type)]
    file = read_scores(path, ["sample_id", *numeric])
    filled = [column for column in numeric if file.table[column].null_count < len(file.table)]
    if name not in filled:
        reason = "is empty" if name in numeric else "is not a column of scores"
        raise ConfigError(
            f"{key} {name!r} {reason} in {path}",
            f"choose one of {filled}, or score again so that it is filled",
        )
    sample_ids = unique_ids(file.table, path)
    scores = file.table[name].cast(pa.float64()).to_numpy()
    return _ScoreColumn(sample_ids, scores, file.provenance)


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


COLUMNS = ("sample_id", "label", "label_name", "p_wrong", "suggested_label_name")


@dataclass(frozen=True)
class Supervision:
    """What the loss of each sample is computed from besides its given label.

    Attributes:
        weights: Factor of the objective of each sample, with mean 1 over the training samples; None
            counts all alike. Shape (samples,).
        shares: Share of the given label in the loss, from 0 to 1; the rest belongs to `others`.
            None where the given labels are the only ones. Shape (samples,).
        others: A second label of each sample; None where there is none. Shape (samples,).
    """

    weights: Tensor | None = None
    shares: Tensor | None = None
    others: Tensor | None = None

    def of(self, positions: Tensor, device: torch.device) -> "Supervision":
        """That of some samples, on a device."""
        weights, shares, others = (
            None if each is None else each[positions].to(device, non_blocking=True)
            for each in (self.weights, self.shares, self.others)
        )
        return Supervision(weights, shares, others)

    def mixed(self, shares: Tensor) -> "Supervision":
        """That of mixed samples: of how much of each, the column, is in each mixed one, the row.

        Only without second labels, which a mixture of labels has no place for.
        """
        return self if self.weights is None else Supervision(shares.to(self.weights) @ self.weights)


@dataclass(frozen=True)
class LabelBeliefs:
    """What a score file says about the labels of training samples, in their order.

    Attributes:
        probabilities: Probability that the given label is right, 1 where nothing is known.
            Shape (samples,).
        known: Whether it is known. Shape (samples,).
        others: Likeliest other class, or the given label where nothing is known. Shape (samples,).
    """

    probabilities: Tensor
    known: Tensor
    others: Tensor

    def supervision(self, config: LossConfig) -> Supervision:
        """The weights, or the shares and second labels, that a recipe asks for."""
        shares = self.probabilities.float()
        if config.targets == "posterior":
            return Supervision(shares=shares, others=self.others)
        mean = self.probabilities[self.known].mean()
        if not mean > 0:
            raise TrainingError(
                "the p_wrong of every training sample is 1",
                "look at the labels, or train without loss.weights",
            )
        weights = torch.where(self.known, self.probabilities / mean, 1.0)
        return Supervision(weights=weights.float())

    def describe(self) -> dict[str, float | int]:
        """JSON values: the mean probability, and how many samples are doubted or not known.

        Kish's effective sample size of weights by the probability is a share of all samples.
        """
        known = self.probabilities[self.known]
        return {
            "mean_probability": float(known.mean()),
            "more_likely_wrong": int((known < 0.5).sum()),  # noqa: PLR2004 - a probability
            "effective_share": float(known.mean() ** 2 / known.square().mean()),
            "missing": int((~self.known).sum()),
        }


def trust_in_labels(table: pa.Table, num_classes: int) -> NDArray[np.float64]:
    """Probability that each label of a score file is right, as training takes it.

    `p_wrong` takes a label for right wherever ambiguity explains it, so that more labels are wrong
    than it says; by the features alone, every ambiguous label is in doubt. This is the mean of
    1 - `p_wrong` and the probability of the label by the features alone, as far as the file has the
    likeliest classes; 1 where a person verified the label. As weights it is more accurate than
    1 - `p_wrong` and better calibrated than the other; as shares of soft targets it has a smaller
    NLL than either (`docs/training.md`).

    Args:
        table: Rows of a score file.
        num_classes: Number of classes of the dataset, above 1.

    Returns:
        NaN where there is no `p_wrong`. Shape (samples,).
    """
    p_wrong = table["p_wrong"].cast(pa.float64()).to_numpy()
    if not {*LIKELIEST_CLASSES, *LIKELIEST_CLASSES.values()} <= {*table.column_names}:
        return 1 - p_wrong
    own = probability_of_label(table, num_classes)
    # A file without a probability of its class has nothing to add to p_wrong.
    trust = 1 - np.where(np.isnan(own), p_wrong, (p_wrong + 1 - own) / 2)
    if MARK_COLUMN in table.column_names:
        trust[table[MARK_COLUMN].is_valid().to_numpy() & ~np.isnan(p_wrong)] = 1
    return trust


def probability_of_label(table: pa.Table, num_classes: int) -> NDArray[np.float64]:
    """Probability of each given class by the features alone, NaN where there is none.

    Classes that are not among the likeliest have what these leave, in equal parts.
    """
    labels = table["label"].to_numpy()
    left = np.ones(len(labels))
    own = np.full(len(labels), np.nan)
    for label, probability in LIKELIEST_CLASSES.items():
        shares = table[probability].cast(pa.float64()).to_numpy()
        is_own = table[label].fill_null(-1).to_numpy() == labels
        own = np.where(is_own, shares, own)
        left -= np.nan_to_num(shares)
    rest = left.clip(0) / max(1, num_classes - len(LIKELIEST_CLASSES))
    known = ~np.isnan(table[next(iter(LIKELIEST_CLASSES.values()))].cast(pa.float64()).to_numpy())
    return np.where(known & np.isnan(own), rest, own)


def label_beliefs(samples: Samples, path: Path, config: LossConfig) -> LabelBeliefs:
    """Reads what a score file says about the labels of training samples; joined by sample id."""
    present = read_score_schema(path).names
    optional = (MARK_COLUMN, *LIKELIEST_CLASSES, *LIKELIEST_CLASSES.values())
    table = read_scores(path, [*COLUMNS, *(each for each in optional if each in present)]).table
    probabilities = trust_in_labels(table, len(samples.class_names))
    if np.isnan(probabilities).all():
        raise ConfigError(f"no sample of {path} has a p_wrong", "score labels of several classes")
    scored_ids = unique_ids(table, path)
    ids = pa.array(list(samples.sample_ids), pa.large_string())
    positions = positions_of(ids, scored_ids)
    found = np.append(probabilities, np.nan)[positions]
    known = ~np.isnan(found)
    _require_known(ids, known, positions, path, config)
    names = np.array(samples.class_names, dtype=object)
    given = names[samples.labels.numpy()]
    _require_same_labels(ids, given, _take(table["label_name"], positions), path)
    suggested = np.where(known, _take(table["suggested_label_name"], positions), given)
    return LabelBeliefs(
        probabilities=torch.from_numpy(np.where(known, found, 1.0)),
        known=torch.from_numpy(known),
        others=_class_indices(suggested, samples.class_names, path),
    )


def _take(column: pa.ChunkedArray, positions: NDArray[np.int64]) -> NDArray[np.object_]:
    """Texts of some rows; None for the row -1, and where there is none."""
    texts = np.array([*column.cast(pa.large_string()).to_pylist(), None], dtype=object)
    return texts[positions]


def _require_known(
    ids: pa.Array,
    known: NDArray[np.bool_],
    positions: NDArray[np.int64],
    path: Path,
    config: LossConfig,
) -> None:
    if known.all() or (config.missing == "keep" and known.any()):
        return
    problems = [
        f"{len(some):,} of {len(ids):,} training samples {problem}, {examples_of(some)}"
        for some, problem in (
            (ids.filter(pa.array(positions < 0)), "are not in it"),
            (ids.filter(pa.array(~known & (positions >= 0))), "have no p_wrong"),
        )
        if len(some)
    ]
    remedy = "score the training dataset"
    if known.any():
        remedy += ', or set loss.missing = "keep" to train on the labels of such samples as given'
    raise UnmatchedScores(f"{path} does not fit the dataset: {'; '.join(problems)}", remedy)


def _require_same_labels(
    ids: pa.Array, given: NDArray[np.object_], scored: NDArray[np.object_], path: Path
) -> None:
    """Refuses scores of other labels than those that are trained on."""
    differs = np.array([name is not None for name in scored]) & (scored != given)
    if differs.any():
        first = int(np.flatnonzero(differs)[0])
        raise UnmatchedScores(
            f"{differs.sum():,} of {len(ids):,} training samples have another label than in "
            f"{path}, for example {ids[first].as_py()!r}: {given[first]!r}, and {scored[first]!r} "
            "there",
            "score the labels that are trained on; data.label_noise changes labels after scoring",
        )


def _class_indices(names: NDArray[np.object_], class_names: tuple[str, ...], path: Path) -> Tensor:
    """The class of each name. Shape (samples,)."""
    index = {name: position for position, name in enumerate(class_names)}
    unknown = sorted({str(name) for name in names if name not in index})
    if unknown:
        raise UnmatchedScores(
            f"{path} suggests labels of classes that the training samples lack: "
            f"{', '.join(map(repr, unknown[:3]))}",
            "score the training dataset",
        )
    return torch.tensor([index[name] for name in names], dtype=torch.int64)
