"""Tables that a program holds, of whatever library, as Arrow tables of plain columns.

Nothing is imported that the caller has not imported: a class is looked up in the package that
defines it, where that is loaded.
"""

import sys
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from difficulty_service.base.errors import DatasetError, DifficultyError
from difficulty_service.base.plain_columns import plain_column, plain_table

Column = Any
"""One value per row: a tensor, a NumPy array, a pandas Series, an Arrow column or a sequence."""


REMEDY = (
    "pass a DataFrame, an Arrow table or a mapping of columns of one length and one type each, "
    "such as {'sample_id': ids}"
)


class SupportsArrow(Protocol):
    """A table that Arrow reads, as of pandas, polars or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as a stream."""


Frame: TypeAlias = SupportsArrow | Mapping[str, Column]
"""A DataFrame of pandas or polars, an Arrow table, a relation of DuckDB, a Dataset of Hugging Face,
or a mapping of columns."""


def is_of(value: object, package: str, name: str) -> bool:
    """Whether an object is of a class of a package, which is not imported for the question."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def is_pandas(value: object, name: str) -> bool:
    """Whether an object is of a class of pandas."""
    return is_of(value, "pandas", name)


def is_data_frame(value: object) -> bool:
    """Whether an object is a DataFrame of pandas or polars."""
    return is_pandas(value, "DataFrame") or is_of(value, "polars", "DataFrame")


def is_mapping(value: object) -> bool:
    """Whether an object is a mapping of columns, and no sparse matrix, of which some are a dict."""
    return isinstance(value, Mapping) and not hasattr(value, "shape")


def is_hugging_face(value: object) -> bool:
    """Whether an object is a table of Hugging Face's `datasets`."""
    return is_of(value, "datasets", "Dataset")


def is_arrow(value: object) -> bool:
    """Whether an object is of Arrow, or of a library that hands its data to Arrow."""
    return isinstance(value, pa.Array | pa.RecordBatch) or hasattr(value, "__arrow_c_stream__")


def refuse_lazy(value: object, parameter: str) -> None:
    """Raises DatasetError for a query that has not been run, as a LazyFrame of polars."""
    if is_of(value, "polars", "LazyFrame"):
        raise DatasetError(
            "a LazyFrame is a query that has not been run",
            "pass what its `collect()` returns",
            parameter=parameter,
        )


def require_one_order(rows: object, values: object, rows_name: str, parameter: str) -> None:
    """Raises DatasetError where pandas has the same index for both, in different orders.

    Values are taken by position, which would give rows the values of others. Indexes without a
    common order, such as one counted anew, say nothing.
    """
    held = [is_pandas(each, "DataFrame") or is_pandas(each, "Series") for each in (rows, values)]
    if not all(held):
        return
    first, second = rows.index, values.index  # type: ignore[attr-defined]
    if len(first) != len(second) or first.equals(second):
        return
    if first.is_unique and second.is_unique and set(first) == set(second):
        raise DatasetError(
            f"{parameter} have the index of {rows_name} in another order",
            f"pass {parameter}.loc[{rows_name}.index], or {parameter}.to_numpy() if they belong "
            "together by position",
            parameter=parameter,
        )


def to_table(
    frame: Frame, what: str, parameter: str, error: type[DifficultyError] = DatasetError
) -> pa.Table:
    """The columns of a Frame.

    Of a pandas DataFrame, levels of the index that have names are columns, too.

    Args:
        what: What messages call the table.
        parameter: The argument that it was passed as.
        error: Class of what is raised.

    Raises:
        error: It is no table, or a column has values of several types.
    """
    refuse_lazy(frame, parameter)
    try:
        if isinstance(frame, Mapping):
            return plain_table(pa.table({name: _cells(frame[name]) for name in frame}))
        held = read_arrow(frame)
    except (pa.ArrowException, TypeError, ValueError) as problem:
        raise error(
            f"{what} cannot be read: {' '.join(str(problem).split())}",
            REMEDY,
            parameter=parameter,
        ) from problem
    if isinstance(held, pa.ChunkedArray):
        raise error(f"{what} is one column", REMEDY, parameter=parameter)
    return held


def read_arrow(held: Any) -> pa.Table | pa.ChunkedArray:  # noqa: ANN401 - of any library
    """A table or column of another library, or of Arrow itself, with plain columns.

    Raises:
        pa.ArrowException, TypeError, ValueError: Arrow cannot read it.
    """
    if isinstance(held, pa.Array):
        return pa.chunked_array([plain_column(held)])
    if is_pandas(held, "DataFrame"):
        return plain_table(_of_pandas(held))
    if is_hugging_face(held):
        return plain_table(held.with_format("arrow")[:])
    if isinstance(held, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return plain_table(pa.table(held))
    column = pa.chunked_array(held)
    if pa.types.is_struct(column.type):  # which a table is to whoever reads its stream
        return plain_table(pa.Table.from_struct_array(column))
    return plain_column(column)


def _of_pandas(frame: Any) -> pa.Table:  # noqa: ANN401 - pandas is optional
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    columns = frame.reset_index(named) if named else frame
    return pa.Table.from_pandas(columns, preserve_index=False)


def _cells(values: Column) -> Any:  # noqa: ANN401 - whatever Arrow makes columns of
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return list(values)
    if is_of(values, "datasets", "Column"):
        return values[:]
    return read_arrow(values) if is_arrow(values) else values
