"""The column that scores are judged by: joined to samples by id, turned into numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.errors import AuditError

EXAMPLES = 3
"""So many ids are shown where ids do not fit together."""


@dataclass(frozen=True)
class Values:
    """One number per sample, made of a column.

    Attributes:
        numbers: float64, NaN where the column says nothing. Shape (samples,).
        meaning: How a number was made, in words.
    """

    numbers: NDArray[np.float64]
    meaning: str


def require_columns(holder: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises AuditError naming the columns that are missing and those there are."""
    missing = [name for name in wanted if name not in names]
    if missing:
        raise AuditError(
            f"{holder} has no column {', '.join(missing)}; its columns are {', '.join(names)}"
        )


def match_ids(sample_ids: pa.ChunkedArray, keys: pa.ChunkedArray, join: str) -> pa.Array:
    """Row of each sample among the keys, null where there is none.

    Args:
        sample_ids: Text. Shape (samples,).
        keys: Anything that has a text form. Shape (rows,).
        join: Name of the keys' column, for messages.

    Raises:
        AuditError: An id or key occurs twice, or none fits.
    """
    try:
        texts = keys.cast(pa.string()).combine_chunks()
    except pa.ArrowException as error:
        raise AuditError(f"column {join} of {keys.type} cannot be text to join by") from error
    ids = sample_ids.cast(pa.string()).combine_chunks()
    _refuse_duplicates(ids, "sample_id of the scores")
    _refuse_duplicates(texts, f"column {join}")
    rows = pc.index_in(ids, value_set=texts, skip_nulls=True)
    if rows.null_count == len(rows):
        raise AuditError(_nothing_fits(ids, texts, join))
    return rows


def _refuse_duplicates(texts: pa.Array, name: str) -> None:
    counts = pc.value_counts(texts.drop_null())
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(repeated):
        examples = repeated[:EXAMPLES].to_pylist()
        raise AuditError(
            f"{name}: {len(repeated)} values occur more than once, such as {examples}; "
            "a join needs each only once"
        )


def _nothing_fits(ids: pa.Array, texts: pa.Array, join: str) -> str:
    message = (
        f"none of {len(ids)} sample ids is in column {join}: sample ids look like "
        f"{ids[:EXAMPLES].to_pylist()}, the column like {texts[:EXAMPLES].to_pylist()}"
    )
    if len(ids) and "#" in ids[0].as_py():
        message += (
            f"; ids are file#row, give a column of such text, or score with --id-column {join}"
        )
    return message


def choose_kind(column: pa.ChunkedArray, labels: NDArray[np.integer[Any]]) -> str:
    """`flag` for another label or a boolean, `rank` for every other number or list."""
    if pa.types.is_boolean(column.type) or _is_text(column.type):
        return "flag"
    if pa.types.is_integer(column.type):
        limits = pc.min_max(column).as_py()
        low, high = limits["min"], limits["max"]
        if low is not None and low >= labels.min() and high <= labels.max():
            return "flag"
    return "rank"


def rank_values(column: pa.ChunkedArray, name: str) -> Values:
    """Numbers as they are, votes or probabilities as their entropy.

    Raises:
        AuditError: Neither numbers nor lists, or a negative vote.
    """
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return Values(_floats(column), "as it is")
    if not _is_list(column.type):
        raise AuditError(
            f"column {name} is {column.type}; a rank needs numbers, or lists of votes or "
            "probabilities; another label or a boolean is for --kind flag or error-rate"
        )
    votes = _matrix(column, name)
    if (votes < 0).any():
        raise AuditError(
            f"column {name} holds negative numbers, so these are no votes or probabilities; "
            "logits are for --kind error-rate"
        )
    with np.errstate(invalid="ignore"):
        shares = votes / votes.sum(axis=1, keepdims=True)
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return Values(-(shares * logarithms).sum(axis=1), "entropy in nats")


def disagreement(
    column: pa.ChunkedArray,
    labels: NDArray[np.integer[Any]],
    label_names: pa.ChunkedArray,
    name: str,
) -> Values:
    """1 where a column says that the sample is not what its label says, else 0.

    Args:
        column: Boolean as it is; integers are class indices, text class names, and of a list of
            votes, probabilities or logits the first largest is the class.
        labels: Class indices. Shape (samples,).
        label_names: Class names as text. Shape (samples,).
        name: The column's name, for messages.

    Raises:
        AuditError: Another type, or text in which no class is named.
    """
    if pa.types.is_boolean(column.type):
        return Values(_floats(column.cast(pa.int8())), "where it is true")
    if pa.types.is_integer(column.type):
        classes, meaning = _floats(column), "where it differs from the label"
    elif _is_text(column.type):
        known = pc.is_in(column, value_set=pc.unique(label_names))
        if not pc.any(known).as_py():
            raise AuditError(
                f"no value of column {name} is a class name: values look like "
                f"{column[:EXAMPLES].to_pylist()}, class names like "
                f"{pc.unique(label_names)[:EXAMPLES].to_pylist()}"
            )
        differs = pc.not_equal(column.cast(pa.string()), label_names)
        return Values(_floats(differs.cast(pa.int8())), "where it differs from the label's name")
    elif _is_list(column.type):
        scores = _matrix(column, name)
        empty = np.isnan(scores).any(axis=1)
        classes = np.where(empty, np.nan, scores.argmax(axis=1))
        meaning = "where its largest entry is not the label's"
    else:
        raise AuditError(
            f"column {name} is {column.type}; a flag or an error is boolean, a class index, a "
            "class name, or a list of votes, probabilities or logits; numbers are for --kind rank"
        )
    return Values(np.where(np.isnan(classes), np.nan, classes != labels), meaning)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    return numbers


def _matrix(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """Rows of a list column, all NaN where null. Shape (samples, length)."""
    present = column.is_valid().to_numpy()
    lists = column.drop_null()
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(lengths) != 1 or lengths[0] == 0:
        raise AuditError(
            f"lists of column {name} have lengths {lengths[:EXAMPLES]}, not one length"
        )
    rows = np.full((len(column), lengths[0]), np.nan)
    try:
        rows[present] = _floats(pc.list_flatten(lists)).reshape(-1, lengths[0])
    except pa.ArrowException as error:
        raise AuditError(f"column {name} is {column.type}, not lists of numbers") from error
    return rows
