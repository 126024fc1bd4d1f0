"""Columns between NumPy or Python and Arrow, without pandas.

Arrow's own functions, `pa.array` and `to_numpy`, import pandas where it is installed, which can
take longer than scoring a dataset.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def strings_to_arrow(strings: Sequence[str]) -> pa.StringArray:
    """Strings as a column."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    )


def to_arrow(numbers: NDArray[Any]) -> pa.Array:
    """Numbers as a column; NaN becomes null. Shape (rows,)."""
    numbers = np.ascontiguousarray(numbers)
    known = ~np.isnan(numbers)
    validity = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(numbers)])


def to_numpy(column: pa.Array) -> NDArray[Any]:
    """A column of numbers; null becomes NaN, so integer columns must have none. Shape (rows,).

    Returns:
        The memory of the column itself where there are no nulls; it must not be written to.
    """
    if column.null_count:
        nan = pa.py_buffer(np.array([np.nan], column.type.to_pandas_dtype()))
        column = column.fill_null(pa.Array.from_buffers(column.type, 1, [None, nan])[0])
    return np.from_dlpack(column)
