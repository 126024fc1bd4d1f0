"""Columns of every type that other libraries hand out, as the values that they hold."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from difficulty_service.base.plain_columns import plain_column, plain_table

VIEWS = pa.string_view()


def categories(texts: list[str | None]) -> pa.Array:
    """A column as polars hands out categories."""
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    dictionary = encoded.dictionary.cast(VIEWS)
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.uint32()), dictionary)


TEXTS = ["a", None, "b", "a"]
BYTES = pa.array([b"1", None, b"2"], pa.binary_view())
VECTORS = [[1.0, 2.0], None, [3.0], [], [4.0]]
COLUMNS: dict[str, tuple[pa.Array, pa.DataType]] = {
    "views of text": (pa.array(TEXTS, VIEWS), pa.large_string()),
    "views of bytes": (BYTES, pa.large_binary()),
    "dictionaries": (pa.array(TEXTS).dictionary_encode(), pa.string()),
    "dictionaries of views": (categories(TEXTS), pa.large_string()),
    "views of lists": (
        pa.array(VECTORS, pa.list_view(pa.float32())),
        pa.large_list(pa.float32()),
    ),
    "large views of lists": (
        pa.array(VECTORS, pa.large_list_view(pa.float32())),
        pa.large_list(pa.float32()),
    ),
    "views of lists in another order": (
        pa.ListViewArray.from_arrays(
            pa.array([2, 0], pa.int32()), pa.array([2, 2], pa.int32()), pa.array([1.0, 2, 3, 4])
        ),
        pa.large_list(pa.float64()),
    ),
    "lists of categories": (
        pa.LargeListArray.from_arrays(pa.array([0, 1, 4]), categories(TEXTS)),
        pa.large_list(pa.large_string()),
    ),
    "lists of one length": (
        pa.FixedSizeListArray.from_arrays(categories(TEXTS), 2, mask=pa.array([False, True])),
        pa.list_(pa.large_string(), 2),
    ),
    "structures": (
        pa.StructArray.from_arrays(
            [BYTES, categories(["x", "y", None])],
            ["bytes", "path"],
            mask=pa.array([False, True, False]),
        ),
        pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())]),
    ),
    "runs": (pc.run_end_encode(pa.array([1, 1, None, 2])), pa.int64()),
    "tensors": (
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2)),
        pa.list_(pa.float64(), 4),
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_keep_their_values_also_where_they_are_a_part_of_others(name: str) -> None:
    column, kind = COLUMNS[name]
    stored = column.storage if isinstance(column.type, pa.BaseExtensionType) else column

    for part, values in ((column, stored), (column[1:], stored[1:]), (column[:0], stored[:0])):
        plain = plain_column(part)

        plain.validate(full=True)
        assert plain.type.equals(kind)
        assert plain.to_pylist() == values.to_pylist()


def test_a_table_keeps_its_columns_in_chunks_and_its_metadata() -> None:
    chunks = pa.chunked_array([categories(["a", "b"]), categories(["c", None])])
    table = pa.table({"text": chunks, "number": [1, 2, 3, 4]}).replace_schema_metadata({"a": "b"})

    plain = plain_table(table)

    assert plain["text"].to_pylist() == ["a", "b", "c", None]
    assert plain["text"].type == pa.large_string()
    assert plain["number"] == table["number"]
    assert plain.schema.metadata == {b"a": b"b"}
