"""From a score file to its explanation: the CLIP, the features, the comparison and the file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from difficulty_service.audit.attributes import measure_similarities, rows_of
from difficulty_service.audit.explanation import Explanation, explain, scored_by
from difficulty_service.audit.files import write_json
from difficulty_service.backbones import DEFAULT_BACKBONE
from difficulty_service.backbones.clip_text import TextEncoder, is_clip
from difficulty_service.feature_store.description import is_store, read_description
from difficulty_service.feature_store.store import (
    FeatureStore,
    open_store,
)
from difficulty_service.files.wording import count_of, is_or_are
from difficulty_service.score_file import ScoreFile, read_score_schema, read_scores

COLUMNS = ("sample_id", "label_name", "rmd")
"""Columns of a score file that an explanation needs."""

COPIES = "duplicate_of"
"""Column of copies, which are left out where a score file has it."""

PROJECTED = "projected"
"""The kind of features in the space that images share with words."""


def read_explained(path: Path) -> ScoreFile:
    """Reads the columns of a score file that an explanation is made from.

    Raises:
        ScoreFileError: As for `read_scores`.
    """
    present = read_score_schema(path).names
    return read_scores(path, [*COLUMNS, *([COPIES] if COPIES in present else [])])


def choose_clip(scores: ScoreFile) -> str:
    """The backbone of the scores where it is a CLIP, else the default one."""
    backbone = str(scores.provenance.backbone)
    return backbone if is_clip(backbone) else DEFAULT_BACKBONE


def find_features(scores: ScoreFile, folder: Path, encoder: TextEncoder) -> FeatureStore | None:
    """The features that were scored, if they are in the space that images share with words.

    Args:
        scores: The scores.
        folder: Where they would be.
        encoder: The CLIP that knows the words.
    """
    if not is_store(folder):
        return None
    known = read_description(folder)
    is_of_encoder = (known.backbone, known.weights_sha256, known.features) == (
        encoder.name,
        encoder.weights_sha256,
        PROJECTED,
    )
    of_scores = known.fingerprint == scores.provenance.fingerprint
    return open_store(folder) if is_of_encoder and of_scores and not known.augment_runs else None


def explain_scores(
    scores: ScoreFile, store: FeatureStore, encoder: TextEncoder, phrases: Sequence[str]
) -> tuple[Explanation, Sequence[str]]:
    """Compares the samples that have a score and features; of copies, the first one.

    Args:
        scores: A score file with COLUMNS.
        store: Projected features of the same samples.
        encoder: The CLIP that they are of.
        phrases: The attributes.

    Returns:
        The explanation, and warnings, one sentence each.

    Raises:
        AuditError: There are too few samples.
    """
    table = scores.table.filter(scores.column("rmd").is_valid())
    if COPIES in table.column_names:
        table = table.filter(table[COPIES].is_null())
    sample_ids, similarities = measure_similarities(store, encoder.encode(phrases))
    rows = rows_of(sample_ids, table["sample_id"].to_pylist())
    known = rows >= 0
    missing = int((~known).sum())
    left_out = f"{count_of(missing, 'sample')} {is_or_are(missing)} left out for want of an image"
    explanation = explain(
        similarities[rows[known]],
        table["rmd"].to_numpy()[known],
        np.array(table["label_name"].to_pylist())[known].tolist(),
        phrases,
    )
    return explanation, [left_out] if missing else []


def write_explanation(
    path: Path, explanation: Explanation, scores: ScoreFile, encoder: TextEncoder
) -> None:
    """Writes everything that was found, the CLIP that found it, and whose scores it explains."""
    origin = {
        "backbone": encoder.name,
        "weights_sha256": encoder.weights_sha256,
        "fingerprint": scores.provenance.fingerprint,
        "scores": scored_by(scores.provenance),
    }
    write_json(path, {**explanation.to_json(), **origin})
