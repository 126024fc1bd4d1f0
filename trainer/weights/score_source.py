"""Which scores the weights of a run were made from, and whether these are reliable."""

import hashlib
from pathlib import Path
from typing import Any

from difficulty_service.errors import TrainingError
from difficulty_service.provenance import Provenance
from difficulty_service.score_columns import scorer_of
from difficulty_service.score_file import read_scores
from trainer.config import ScoreWeights


def require_reliable(provenance: Provenance, path: Path, config: ScoreWeights) -> None:
    """Refuses scores that were marked as unreliable when they were written.

    Args:
        provenance: Provenance of the score file.
        path: Score file, for the message.
        config: Whether the recipe allows such scores.

    Raises:
        TrainingError: The scores are unreliable, and the recipe does not allow that.
    """
    if provenance.reliable is not False or config.unreliable == "allow":
        return
    raise TrainingError(
        f"the scores of {path} are marked as unreliable: there are fewer samples than a feature "
        "vector has numbers, and no shrinkage",
        "score again with `difficulty score --shrinkage auto`, or set regulariser.unreliable = "
        '"allow"',
    )


def describe_scores(path: Path, column: str) -> dict[str, Any]:
    """The identity of the scores that weights are made from, as JSON values.

    Args:
        path: Score file.
        column: Column of the scores.

    Returns:
        Location and SHA-256 of the file, the column and its scorer, whether the scores are
        reliable, and what the file says about its dataset and backbone; None where it says nothing.

    Raises:
        ScoreFileError: The file cannot be read.
    """
    provenance = read_scores(path, ["sample_id"]).provenance
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "file": str(path),
        "sha256": digest,
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
