"""Arrow columns of any library as columns of the types that everything else here computes with.

polars hands out views of text and dictionaries of them, which Arrow can hold but has few functions
for: a dictionary of views cannot even be cast to text.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)

_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_VIEWS: Mapping[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}


def plain_table(table: pa.Table) -> pa.Table:
    """A table with plain columns, as `plain_column` makes them, and the metadata it has."""
    for place, field in enumerate(table.schema):
        kind = plain_type(field.type)
        if kind != field.type:
            column = plain_column(table.column(place))
            table = table.set_column(place, field.with_type(kind), column)
    return table


def plain_column(column: Column) -> Column:
    """A column with the same values: no views of text, bytes or lists, no dictionaries, no runs.

    Extension types give way to what they are stored as. Other columns are unchanged.
    """
    kind = plain_type(column.type)
    if kind == column.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_plain(chunk) for chunk in column.chunks], kind)
    return _plain(column)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a plain column with the values of a column of another type."""
    inner = _inner_type(kind)
    if inner is not None:
        return plain_type(inner)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if any(is_kind(kind) for is_kind in _LISTS):
        return _plain_list_type(kind)
    return _VIEWS.get(kind, kind)


def _inner_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of the values that dictionaries, runs and extension types stand for."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    is_wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return kind.value_type if is_wrapped else None


def _plain_list_type(kind: pa.DataType) -> pa.DataType:
    value = kind.value_field.with_type(plain_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    return pa.list_(value) if pa.types.is_list(kind) else pa.large_list(value)


def _plain(array: pa.Array) -> pa.Array:
    kind, plain = array.type, plain_type(array.type)
    if plain == kind:
        return array
    if _inner_type(kind) is not None:
        return _plain_values(array)
    if pa.types.is_struct(kind):
        cells = [_plain(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(cells, fields=list(plain), mask=array.is_null())
    return array.cast(plain) if kind in _VIEWS else _plain_lists(array, plain)


def _plain_values(array: pa.Array) -> pa.Array:
    """What a dictionary, runs or an extension type stand for."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain(array.storage)
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary).take(array.indices)
    return _plain(pc.run_end_decode(array))


def _plain_lists(array: pa.Array, plain: pa.DataType) -> pa.Array:
    """Lists from their lengths: Arrow's cast of views of lists loses the last one."""
    if pa.types.is_fixed_size_list(plain):
        # Unlike flatten, values keep the place of a list that is null.
        size = plain.list_size
        values = _plain(array.values.slice(array.offset * size, len(array) * size))
        return pa.FixedSizeListArray.from_arrays(values, type=plain, mask=array.is_null())
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    is_small = pa.types.is_list(plain)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32() if is_small else None)
    kind = pa.ListArray if is_small else pa.LargeListArray
    values = _plain(array.flatten())
    return kind.from_arrays(ends, values, type=plain, mask=array.is_null())
