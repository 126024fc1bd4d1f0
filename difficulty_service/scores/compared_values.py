"""A column of another table beside the scores: joined by sample id, and converted to numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.csv_cells import unguard_ids
from difficulty_service.base.errors import AuditError, Setting
from difficulty_service.datasets.labels import numbers_of_classes

EXAMPLES = 3
"""Number of ids or values that are shown in a message."""


@dataclass(frozen=True)
class Values:
    """A column converted to one number per sample.

    Attributes:
        numbers: Values in float64, NaN if the column is null. Shape (samples,).
    """

    numbers: NDArray[np.float64]
    meaning: str


def require_other_columns(table: str, names: Sequence[str], required: Sequence[str]) -> None:
    """Raises AuditError with the missing columns and those of a table that holds no scores."""
    missing = [name for name in required if name not in names]
    if missing:
        raise AuditError(
            f"{table} has no column {', '.join(missing)}", f"its columns are {', '.join(names)}"
        )


def match_ids(
    sample_ids: pa.ChunkedArray, keys: pa.ChunkedArray, join: str, *, keep_first: bool = False
) -> pa.Array:
    """Finds the row of each sample in a column of keys; null if it has none.

    A key that occurs more than once is an error, unless the first row of each is to be kept.
    """
    try:
        texts = keys.cast(pa.string()).combine_chunks()
    except pa.ArrowException as error:
        raise AuditError(
            f"column {join} of type {keys.type} cannot become text to join by", parameter="join"
        ) from error
    ids = sample_ids.cast(pa.string()).combine_chunks()
    _refuse_duplicates(ids, "sample_id of the scores")
    texts = unguard_ids(texts, ids)
    if not keep_first:
        _refuse_duplicates(texts, f"column {join}")
    rows = pc.index_in(ids, value_set=texts, skip_nulls=True)
    if rows.null_count == len(rows):
        raise _no_match(ids, texts, join)
    return rows


def _refuse_duplicates(texts: pa.Array, name: str) -> None:
    counts = pc.value_counts(texts.drop_null())
    duplicates = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(duplicates):
        examples = duplicates[:EXAMPLES].to_pylist()
        raise AuditError(
            f"{name}: {len(duplicates)} values occur more than once, such as {examples}",
            "a join needs unique values",
        )


def _no_match(ids: pa.Array, texts: pa.Array, join: str) -> AuditError:
    problem = (
        f"none of {len(ids)} sample ids is in column {join}: sample ids look like "
        f"{ids[:EXAMPLES].to_pylist()}, the column like {texts[:EXAMPLES].to_pylist()}"
    )
    if len(ids) and "#" in ids[0].as_py():
        return AuditError(
            problem,
            "ids are file#row: use a column of such text, or score with ",
            Setting("id_column", join),
            parameter="join",
        )
    return AuditError(problem, parameter="join")


def label_numbers(
    labels: NDArray[np.integer[Any]], label_names: pa.ChunkedArray, length: int | None = None
) -> NDArray[np.integer[Any]]:
    """The integer that each label is in other tables: its name where all are integers.

    Otherwise, or where these are no places of lists of some length, it is the class index.
    """
    names = pc.unique(label_names).to_pylist()
    if None in names:
        return labels
    numbers = numbers_of_classes(names)
    if list(map(str, numbers)) != names or (length is not None and max(numbers) >= length):
        return labels
    places = pc.index_in(label_names, value_set=pa.array(names, label_names.type)).to_numpy()
    return np.array(numbers)[places]


def choose_kind(column: pa.ChunkedArray, labels: NDArray[np.integer[Any]]) -> str:
    """`flag` for booleans and labels, `rank` for all other numbers and lists.

    The labels are the integers of `label_numbers`.
    """
    if pa.types.is_boolean(column.type) or _is_text(column.type):
        return "flag"
    if pa.types.is_integer(column.type):
        limits = pc.min_max(column).as_py()
        low, high = limits["min"], limits["max"]
        if low is not None and low >= labels.min() and high <= labels.max():
            return "flag"
    return "rank"


def rank_values(column: pa.ChunkedArray, name: str) -> Values:
    """Values to rank by: numbers unchanged, votes or probabilities as their entropy."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return Values(_floats(column), "as it is")
    if not is_list(column.type):
        raise AuditError(
            f"column {name} is {column.type}, but a rank needs numbers, or lists of votes or "
            "probabilities",
            "for labels or booleans use ",
            Setting("kind", "flag"),
            " or ",
            Setting("kind", "error-rate"),
            parameter="kind",
        )
    votes = list_matrix(column, name)
    if (votes < 0).any():
        raise AuditError(
            f"column {name} holds negative numbers, so they are not votes or probabilities",
            "for logits use ",
            Setting("kind", "error-rate"),
            parameter="kind",
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
    """Whether a column disagrees with the label of each sample, as 1 or 0.

    The column has booleans, which are used unchanged, as are zeros and ones where there are more
    than two classes; other integers, which are those of `label_numbers`; text, which are class
    names; or lists of votes, probabilities or logits, whose first maximum is the class.
    """
    labels = label_numbers(labels, label_names) if not is_list(column.type) else labels
    if pa.types.is_boolean(column.type):
        return Values(_floats(column.cast(pa.int8())), "where it is true")
    if pa.types.is_integer(column.type):
        classes, meaning = _floats(column), "where it differs from the label"
        if labels.max() > 1 and set(pc.unique(column.drop_null()).to_pylist()) <= {0, 1}:
            return Values(classes, "where it is 1")
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
    elif is_list(column.type):
        scores = list_matrix(column, name)
        empty = np.isnan(scores).any(axis=1)
        classes = np.where(empty, np.nan, scores.argmax(axis=1))
        labels = label_numbers(labels, label_names, scores.shape[1])
        meaning = "where its largest entry is not the label's"
    else:
        raise AuditError(
            f"column {name} is {column.type}, but a flag or an error is a boolean, a class index, "
            "a class name, or a list of votes, probabilities or logits",
            "for numbers use ",
            Setting("kind", "rank"),
            parameter="kind",
        )
    return Values(np.where(np.isnan(classes), np.nan, classes != labels), meaning)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds a list for each sample."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    return numbers


def list_matrix(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """The lists of a column as a matrix, NaN for null. Shape (samples, length)."""
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
