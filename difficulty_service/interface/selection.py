"""Rows of a table of scores by position, mask or id, and its columns as arrays."""

from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.base.tables import to_numpy
from difficulty_service.base.wording import count_of, is_or_are

EXAMPLES = 3
"""Number of ids that a sentence names."""


class SupportsArray(Protocol):
    """What NumPy reads: an array, tensor, Series or column."""

    def __array__(self) -> NDArray[Any]:
        """The values as an array."""


Rows: TypeAlias = slice | list[bool] | list[int] | list[str] | SupportsArray
"""Rows as a slice, one boolean for each sample, positions or sample ids."""


def select_rows(table: pa.Table, chosen: Rows) -> pa.Table:
    """Some rows, in the order of `chosen`.

    Raises:
        ScoreFileError: An id is unknown, a position does not exist, or a mask has another length.
    """
    if isinstance(chosen, slice):
        return table.take(pa.array(range(len(table))[chosen], pa.int64()))
    values = np.asarray(chosen)
    if values.ndim != 1:
        raise _unsuitable(f"have shape {values.shape}")
    if values.dtype.kind == "b":
        if len(values) != len(table):
            raise ScoreFileError(
                f"a mask of {len(values):,} values cannot select of {len(table):,} samples",
                "give one boolean for each sample",
            )
        return table.take(pa.array(np.flatnonzero(values)))
    if values.dtype.kind in "iu" or not len(values):
        return table.take(_positions(values.astype(np.int64), len(table)))
    if not all(isinstance(value, str) for value in values.tolist()):
        raise _unsuitable(f"are of type {values.dtype}")
    return table.take(_of_ids(table, values.tolist()))


def column_array(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column as an array: missing numbers are NaN, texts objects. Shape (samples,)."""
    kind = column.type
    if pa.types.is_integer(kind) and column.null_count:
        column = column.cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        parts = [to_numpy(part) for part in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, kind.to_pandas_dtype())
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return np.array(column.to_pylist(), dtype=object)
    values: NDArray[Any] = column.to_numpy()
    return values


def _positions(values: NDArray[np.int64], count: int) -> pa.Array:
    outside = values[(values < -count) | (values >= count)]
    if len(outside):
        raise ScoreFileError(
            f"there is no sample {outside[0]}: the scores are of {count:,} samples"
        )
    return pa.array(np.where(values < 0, values + count, values))


def _of_ids(table: pa.Table, ids: list[str]) -> pa.Array:
    known = table["sample_id"].combine_chunks()
    rows = pc.index_in(pa.array(ids, pa.string()), value_set=known)
    missing = [name for name, row in zip(ids, rows.to_pylist(), strict=True) if row is None]
    if not missing:
        return rows
    if set(missing) <= set(table.column_names):
        raise ScoreFileError(
            f"{missing[0]!r} is a column, and a list selects samples by their ids",
            f"for columns, write scores.table.select({missing})",
        )
    raise ScoreFileError(
        f"{len(missing):,} of {count_of(len(ids), 'id')} {is_or_are(len(missing))} of no sample, "
        f"such as {missing[:EXAMPLES]}",
        f"sample ids look like {known[:EXAMPLES].to_pylist()}",
    )


def _unsuitable(problem: str) -> ScoreFileError:
    return ScoreFileError(
        f"the rows to select {problem}",
        "give a slice, a boolean for each sample without missing ones, positions or sample ids",
    )
