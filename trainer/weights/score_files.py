"""Score files for training: their rows are joined to samples by id, and their origin is noted."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import ConfigError, ScoreFileError, TrainingError
from difficulty_service.images.pixels import Pixels
from difficulty_service.scores.file import OpenScoreFile, open_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import scorer_of
from trainer.config import AnyData, ImageData
from trainer.samples import Samples

EXAMPLES = 3
"""Number of ids that a message names."""


ScoreFiles = Callable[[str], OpenScoreFile]
"""Gives the score file of a path in a recipe; made by `opening_once`."""


@contextmanager
def opening_once(data: AnyData) -> Iterator[ScoreFiles]:
    """Opens each score file of a run when it is first needed, until the context ends.

    A file whose images were read in another way than this run reads them is refused.

    Weights, beliefs and the order of samples mostly come from one file, and each opening reads all
    of it to verify its checksum. What describes a file is known after the context, too.
    """
    with ExitStack() as stack:

        def opened(path: str) -> OpenScoreFile:
            scores = stack.enter_context(open_scores(Path(path)))
            require_same_pixels(data, scores)
            return scores

        yield cache(opened)


def require_same_pixels(data: AnyData, scores: OpenScoreFile) -> None:
    """Raises ConfigError where scored images were seen in a way that the recipe does not say."""
    seen = Pixels.of(scores.provenance.preprocessing)
    if not isinstance(data, ImageData) or seen is None:
        return
    options = seen.options()
    if options == (data.pixels or Pixels()).options():
        return
    keys = " and ".join(f'data.{name} = "{text}"' for name, text in options.items())
    raise ConfigError(
        f"the images of {scores.path} were scored with {keys}, and this recipe reads them in "
        "another way",
        f"set {keys} and no other of pixel_range, bands and page, also in the recipes that it is "
        "compared with",
    )


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


def texts_at(column: pa.ChunkedArray, positions: NDArray[np.int64]) -> NDArray[np.object_]:
    """Texts of some rows; None for the row -1, and where there is none."""
    texts = np.array([*column.cast(pa.large_string()).to_pylist(), None], dtype=object)
    return texts[positions]


def describe_other_labels(
    samples: Samples, scored: NDArray[np.object_], path: Path
) -> tuple[str, ...]:
    """A sentence where samples have another label than the one that was scored, else none.

    Args:
        samples: Training samples.
        scored: Name of the label of each in the score file, None where there is none.
        path: The score file.
    """
    given = np.array(samples.class_names, dtype=object)[samples.labels.numpy()]
    differs = np.array([name is not None for name in scored]) & (scored != given)
    if not differs.any():
        return ()
    first = int(np.flatnonzero(differs)[0])
    return (
        f"{differs.sum():,} of {len(given):,} training samples have another label than in {path}, "
        f"for example {samples.sample_ids[first]!r}: {given[first]!r}, and {scored[first]!r} there",
    )


def require_reliable(provenance: Provenance, path: Path, way_out: str = "") -> None:
    """Refuses scores that were marked as unreliable when they were written."""
    if provenance.reliable is not False:
        return
    raise TrainingError(
        f"the scores of {path} are marked as unreliable: there are fewer samples than a feature "
        "vector has numbers, and no shrinkage",
        f"score again with `difficulty score --shrinkage auto`{way_out}",
    )


def describe_scores(scores: OpenScoreFile, column: str) -> dict[str, Any]:
    """The identity of the scores that weights are made from, as JSON values; None is not known.

    The file may be closed by now.
    """
    provenance = scores.provenance
    return {
        "file": str(scores.path),
        "sha256": scores.sha256,
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
