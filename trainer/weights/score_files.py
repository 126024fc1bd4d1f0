"""Score files for training: their rows are joined to samples by id, and their origin is noted."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import ScoreFileError, TrainingError
from difficulty_service.base.files import file_sha256
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import scorer_of

EXAMPLES = 3
"""Number of ids that a message names."""


def unique_ids(table: pa.Table, path: Path) -> pa.Array:
    """The ids of a score file; raises ScoreFileError where it has one twice."""
    sample_ids = pa.chunked_array(table["sample_id"]).cast(pa.large_string()).combine_chunks()
    first = positions_of(sample_ids, sample_ids)
    repeated = np.flatnonzero(first != np.arange(len(first)))
    if len(repeated):
        raise ScoreFileError(
            f"{path} has more than one score for {len(repeated):,} sample ids, "
            f"{examples_of(sample_ids.take(pa.array(repeated)))}",
            "score again",
        )
    return sample_ids


def positions_of(sample_ids: pa.Array, among: pa.Array) -> NDArray[np.int64]:
    """First position of each id among others, -1 if it is absent. Shape (ids,)."""
    positions = pc.fill_null(pc.index_in(sample_ids, value_set=among), -1)
    return positions.to_numpy().astype(np.int64)


def examples_of(sample_ids: pa.Array) -> str:
    """The first ids of some, as a clause."""
    examples = sample_ids[:EXAMPLES].to_pylist()
    return f"for example {', '.join(map(repr, examples))}"


def require_reliable(provenance: Provenance, path: Path, way_out: str = "") -> None:
    """Refuses scores that were marked as unreliable when they were written."""
    if provenance.reliable is not False:
        return
    raise TrainingError(
        f"the scores of {path} are marked as unreliable: there are fewer samples than a feature "
        "vector has numbers, and no shrinkage",
        f"score again with `difficulty score --shrinkage auto`{way_out}",
    )


def describe_scores(path: Path, column: str) -> dict[str, Any]:
    """The identity of the scores that weights are made from, as JSON values; None is not known."""
    provenance = read_scores(path, ["sample_id"]).provenance
    return {
        "file": str(path),
        "sha256": file_sha256(path),
        "column": column,
        "scorer": scorer_of(column),
        "reliable": provenance.reliable,
        "dataset": provenance.dataset,
        "fingerprint": provenance.fingerprint,
        "backbone": provenance.backbone,
        "weights_sha256": provenance.weights_sha256,
        "feature_dim": provenance.feature_dim,
        "shrinkage": provenance.shrinkage,
    }
