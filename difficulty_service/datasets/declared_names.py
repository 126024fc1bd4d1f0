"""Names that the schema of a table declares for the integers in a column, as `datasets` does.

Files of one table may number the same classes differently; then the names say which are the same.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.datasets.label_lists import is_list


def declared_names(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """The names of a `ClassLabel`, or of a list of these; none of columns of other kinds."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return names_of_feature(features[column])
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()  # of another writer


def names_of_feature(feature: Any) -> tuple[str, ...]:  # noqa: ANN401 - of `datasets`, or its JSON
    """The names of the integers in a column of `datasets`; none of columns of other kinds."""

    def part(key: str) -> Any:  # noqa: ANN401
        return feature.get(key) if isinstance(feature, Mapping) else getattr(feature, key, None)

    if isinstance(feature, list):
        return names_of_feature(feature[0]) if len(feature) == 1 else ()
    names = part("names")
    if isinstance(names, list):
        return tuple(map(str, names))
    inner = part("feature")
    return () if inner is None else names_of_feature(inner)


def as_names(column: pa.ChunkedArray, names: Sequence[str]) -> pa.ChunkedArray:
    """A column of integers, or lists of these, as their names.

    Negative integers are null, and others without a name are their own.
    """
    if is_list(column.type):
        inner = pa.list_(pa.large_string())
        cells = [
            None if cell is None else [_name(each, names) for each in cell]
            for cell in column.to_pylist()
        ]
        return pa.chunked_array([pa.array(cells, inner)])
    numbers = plain_column(column).combine_chunks().dictionary_encode()
    distinct = [_name(number, names) for number in numbers.dictionary.to_pylist()]
    texts = pa.array(distinct, pa.large_string())
    return pa.chunked_array([texts.take(numbers.indices)])


def _name(number: int | None, names: Sequence[str]) -> str | None:
    if number is None or number < 0:
        return None
    return names[number] if number < len(names) else str(number)


def number_alike(
    columns: Sequence[pa.ChunkedArray], names: Sequence[tuple[str, ...]], files: Sequence[str]
) -> tuple[Sequence[pa.ChunkedArray], tuple[str, ...]]:
    """The label columns of some files with the same integer for the same name, and all names.

    Args:
        columns: The labels of each file.
        names: What each file declares.
        files: Name of each, for messages.

    Raises:
        DatasetError: A file declares no names, or has a label without one, and others have names.
    """
    if len(set(names)) == 1:
        return columns, names[0]
    if () in names:
        silent = names.index(())
        other = next(place for place, each in enumerate(names) if each)
        raise DatasetError(
            f"{files[other]!r} declares the names of its classes, {list(names[other][:3])} and so "
            f"on, and {files[silent]!r} only has their numbers",
            "write the files in the same way, or the names into a column of text that is the "
            "label column of all",
        )
    keys = [_keys(each) for each in names]
    place_of: dict[tuple[str, int], int] = {}
    for each in keys:
        for key in each:
            place_of.setdefault(key, len(place_of))
    numbered = [
        _renumbered(column, [place_of[key] for key in each], file)
        for column, each, file in zip(columns, keys, files, strict=True)
    ]
    return numbered, tuple(name for name, _ in place_of)


def _keys(names: Sequence[str]) -> list[tuple[str, int]]:
    """Each name with the number of equal ones before it, as two classes may share a name."""
    seen: Counter[str] = Counter()
    keys = []
    for name in names:
        keys.append((name, seen[name]))
        seen[name] += 1
    return keys


def _renumbered(column: pa.ChunkedArray, places: Sequence[int], file: str) -> pa.ChunkedArray:
    """Integers, or lists of these, as their places; negative ones as they are."""
    if is_list(column.type):
        lists = column.combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        values = pa.chunked_array([pc.list_flatten(lists)])
        inner = _renumbered(values, places, file).combine_chunks()
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.chunked_array([pa.ListArray.from_arrays(pa.array(ends), inner)])
    numbers = pc.fill_null(plain_column(column).cast(pa.int64()), -1).to_numpy()
    largest = int(numbers.max(initial=-1))
    if largest >= len(places):
        raise DatasetError(
            f"{file!r} has the label {largest}, and declares names of {len(places)} classes alone",
            "declare the names of all classes, or write the names as labels",
        )
    table = np.array([*places, -1], np.int64)  # the last is for negative ones
    return pa.chunked_array([table[np.maximum(numbers, -1)]])
