"""Cells with several labels, of which a sample has one here: told by their type or their texts."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import list_names

REMEDY = (
    "write one label in each row, or use `difficulty tags` where a sample has several, and "
    "`difficulty annotators` where they are those of several annotators"
)

MAX_NAMES = 100_000
"""Number of classes beyond which their names are not compared."""

_SURE_SEPARATORS = (";", "|")  # which names of classes hardly have, unlike the others
_BLANK = " "
_SEPARATORS = (*_SURE_SEPARATORS, ",", _BLANK)
_MOST_PARTS = 20  # of a name; beyond, nobody has listed labels
_REPEATED = 2
_SHOWN = 3
_NUMBER = re.compile(r"[+-]?\d{1,9}(\.\d{1,6})?", re.ASCII)
_MISSING = frozenset(
    ("nan", "NaN", "NaT", "<NA>", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None")
)


def is_list(kind: pa.DataType) -> bool:
    """Whether the cells of a column are lists."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in kinds)


def one_of_each(
    lists: pa.ChunkedArray,
    source: str,
    describe: Callable[[int], str],
    parameter: str = "label_column",
) -> tuple[pa.ChunkedArray, str | None]:
    """The only label in each list, and what was assumed, in a sentence; null for an empty list.

    Lists of numbers of which one is 1 and the others are 0 are one-hot, and become the position of
    the 1. `describe` names the sample of a row, `parameter` the argument with the labels.

    Raises:
        DatasetError: A list has several labels.
    """
    column = lists.combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    if lengths.max(initial=0) > 1 and (positions := _positions(column)) is not None:
        return positions, f"{source} is one-hot: the class is the position of the 1, counted from 0"
    several = np.flatnonzero(lengths > 1)
    if len(several):
        row = int(several[0])
        raise DatasetError(
            f"{source} has {lengths[row]:,} labels at {describe(row)}: "
            f"{', '.join(map(repr, column[row].as_py()[:3]))}",
            "write one label in each cell" if parameter == "columns" else REMEDY,
            parameter=parameter,
        )
    parents = np.flatnonzero(lengths)
    labels = pc.list_flatten(column)
    rows = np.full(len(column), -1)
    rows[parents] = np.arange(len(parents))
    return pa.chunked_array([labels.take(pa.array(rows, mask=rows < 0))]), None


def _positions(column: pa.Array) -> pa.ChunkedArray | None:
    """The positions of the only 1 of each list; None where the lists are not one-hot."""
    known = column.drop_null()
    numbers = pc.list_flatten(known)
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if numbers.null_count or not any(is_kind(numbers.type) for is_kind in kinds):
        return None
    values = numbers.to_numpy(zero_copy_only=False)
    if len(values) % len(known):
        return None
    matrix = values.reshape(len(known), -1)
    same = pc.count_distinct(pc.list_value_length(known)).as_py() == 1
    if not same or not np.isin(matrix, (0, 1)).all() or not (matrix.sum(axis=1) == 1).all():
        return None
    labels = np.full(len(column), -1)  # no label where the list is null
    labels[column.is_valid().to_numpy(zero_copy_only=False)] = matrix.argmax(axis=1)
    return pa.chunked_array([labels])


def combinations_warning(names: Sequence[str], source: str) -> str | None:
    """A sentence where the names of classes are evidently combinations of others; None elsewhere.

    See `combined_by`.
    """
    found = combined_by(names)
    if found is None:
        return None
    return (
        f"{source} seems to have several labels in one cell, such as {found[0]!r}, and each "
        f"combination is read as a class of its own; {REMEDY}"
    )


def combined_by(names: Sequence[str]) -> tuple[str, str] | None:
    """A name that is evidently a combination of others, and the separator; None for no such names.

    There are such where most names with a separator consist of other names: `cat;dog` beside `cat`
    and `dog`. For semicolons and vertical bars it is enough that each part is in two names. Other
    names may have commas or blanks: "Bergen, Norway", "red wine". Of those with blanks, two are to
    be combinations. For lists that are written as texts the separator is empty.
    """
    if len(names) > MAX_NAMES:
        return None
    listed = [name for name in names if name.startswith("[") and name.endswith("]") and "," in name]
    if 2 * len(listed) >= max(len(names), 1):
        return listed[0], ""
    for separator in _SEPARATORS:
        together = {
            name: [part.strip() for part in name.split(separator)]
            for name in names
            if 0 < name.count(separator) < _MOST_PARTS
        }
        known = {name.strip() for name in names if separator not in name}
        if separator in _SURE_SEPARATORS:
            seen = Counter(part for parts in together.values() for part in set(parts))
            known |= {part for part, times in seen.items() if times >= _REPEATED}
        evident = [name for name, parts in together.items() if all(map(known.__contains__, parts))]
        fewest = _REPEATED if separator == _BLANK else 1
        if len(evident) >= fewest and 2 * len(evident) >= len(together):
            return evident[0], separator
    return None


def similar_names_warning(names: Sequence[str], source: str) -> str | None:
    """A sentence where names of classes hardly differ; None elsewhere.

    They differ in blanks, capital letters or the encoding of accents alone, or are the same number:
    1, 1.0 and 01. They stay the classes that they are.
    """
    if len(names) > MAX_NAMES:
        return None
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(_likeness(name), []).append(name)
    pairs = [_side_by_side(each) for each in alike.values() if len(each) > 1]
    if not pairs:
        return None
    are_numbers = all(_NUMBER.fullmatch(each[0].strip()) for each in alike.values() if each[1:])
    differ = "differ only in blanks, capital letters or the encoding of accents"
    how = "are the same numbers" if are_numbers else differ
    return (
        f"{source} has classes whose names {how}, and each is a class of its own: "
        f"{list_names(pairs, _SHOWN)}"
    )


def _likeness(name: str) -> str:
    """What a name and others that are probably meant to be the same have in common."""
    folded = " ".join(unicodedata.normalize("NFC", name).split()).casefold()
    return str(float(folded) + 0.0) if _NUMBER.fullmatch(folded) else folded


def _side_by_side(names: Sequence[str]) -> str:
    """Names in quotes, as codes where they look the same."""
    look_same = len({unicodedata.normalize("NFC", name) for name in names}) < len(names)
    return " and ".join(map(ascii if look_same else repr, names))


def missing_names_warning(names: Sequence[str], source: str) -> str | None:
    """A sentence where classes have names that programs write for no label; None elsewhere."""
    found = [repr(name) for name in names if name.strip() in _MISSING]
    if not found or len(names) == 1:
        return None
    classes = "class" if len(found) == 1 else "classes"
    return (
        f"{source} has the {classes} {list_names(found, _SHOWN)}, which programs write where there "
        "is no label; leave these cells empty if they have none"
    )
