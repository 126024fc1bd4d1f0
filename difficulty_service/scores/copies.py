"""Groups of samples that are exact or near copies of each other."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

COPIES = ("near_duplicate_of", "duplicate_of")
"""Columns of copies, where a score file has them; near copies include exact ones."""


def copies_in(table: pa.Table) -> pa.StringArray:
    """Id of the first sample that each one is a copy or near copy of; null for others."""
    columns = [table[name].cast(pa.string()) for name in COPIES if name in table.column_names]
    none = pa.chunked_array([pa.nulls(len(table), pa.string())])
    return pc.coalesce(*columns, none).combine_chunks()


def copy_groups(ids: pa.StringArray, copy_of: pa.StringArray) -> Sequence[NDArray[np.int64]]:
    """Rows of the samples of each group of copies.

    A copy of a copy belongs to the same group. Copies of samples that are not there are ignored.

    Args:
        copy_of: As `copies_in`. Shape (samples,), as the ids.

    Returns:
        Ascending rows of each group of two or more, ordered by their first rows.
    """
    copies = np.flatnonzero(copy_of.is_valid().to_numpy(zero_copy_only=False))
    if not len(copies):
        return []
    firsts = pc.index_in(copy_of.take(pa.array(copies)), value_set=ids)
    known = firsts.is_valid().to_numpy(zero_copy_only=False)
    copies, first = copies[known], firsts.drop_null().cast(pa.int64()).to_numpy()
    members, places = np.unique(np.concatenate([first, copies]), return_inverse=True)
    # Each copy names one other sample, so that following the names leads to one for each group.
    group_of = np.arange(len(members))
    group_of[places[len(copies) :]] = places[: len(copies)]
    for _ in range(len(members).bit_length()):
        group_of = group_of[group_of]
    order = np.argsort(group_of, kind="stable")
    starts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
    groups = np.split(members[order], starts[1:])
    return sorted(groups, key=lambda rows: int(rows[0]))
