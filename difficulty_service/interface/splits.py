"""Samples of a set as people hold them in Python: on disk, or as arrays in memory."""

from pathlib import Path
from typing import TypeAlias

from difficulty_service.base.errors import DatasetError
from difficulty_service.interface.arrays import Matrix, read_arrays
from difficulty_service.interface.tables import Column
from difficulty_service.scoring.splits import Split, open_split

Samples: TypeAlias = str | Path | tuple[Matrix, Column] | tuple[Matrix, Column, Column]
"""A folder of features or a score file with one beside it, or features, labels and perhaps ids."""


def split_of(name: str, samples: Samples, like: Split | None = None) -> Split:
    """The split of some samples.

    Args:
        name: What arrays are called.
        like: As for `open_split`.

    Raises:
        DatasetError: They are neither a path nor such a tuple.
    """
    if isinstance(samples, str | Path):
        return open_split(Path(samples), like)
    if not isinstance(samples, tuple) or len(samples) not in {2, 3}:
        raise DatasetError(
            f"samples are of type {type(samples).__name__}",
            "pass the path of features or scores, or a tuple of features, labels and perhaps ids",
            parameter=name,
        )
    features, labels, *ids = samples
    return Split(name, read_arrays(features, labels, ids[0] if ids else None))
