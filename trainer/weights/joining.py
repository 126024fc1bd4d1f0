"""Joins samples to the rows of a score file by their ids."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.errors import ScoreFileError

EXAMPLES = 3
"""Number of ids that a message names."""


def require_unique(sample_ids: pa.Array, path: Path) -> None:
    """Raises ScoreFileError where a score file, named for the message, has an id twice."""
    first = positions_of(sample_ids, sample_ids)
    repeated = np.flatnonzero(first != np.arange(len(first)))
    if len(repeated):
        raise ScoreFileError(
            f"{path} has more than one score for {len(repeated):,} sample ids, "
            f"{examples_of(sample_ids.take(pa.array(repeated)))}",
            "score again",
        )


def positions_of(sample_ids: pa.Array, among: pa.Array) -> NDArray[np.int64]:
    """First position of each id among others, -1 if it is absent. Shape (ids,)."""
    positions = pc.fill_null(pc.index_in(sample_ids, value_set=among), -1)
    return positions.to_numpy().astype(np.int64)


def examples_of(sample_ids: pa.Array) -> str:
    """The first ids of some, as a clause."""
    examples = sample_ids[:EXAMPLES].to_pylist()
    return f"for example {', '.join(map(repr, examples))}"
