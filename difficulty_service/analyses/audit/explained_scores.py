"""From a score file to its explanation: the CLIP, the features, the comparison and the file.

Phrases that describe photographs, and how similar images are to them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.analyses.audit.explanation import explain
from difficulty_service.backbones import DEFAULT_BACKBONE, is_clip
from difficulty_service.backbones.clip_space import PROJECTED
from difficulty_service.backbones.clip_text import ClipTextEncoder
from difficulty_service.base.checksums import write_json
from difficulty_service.base.errors import AuditError
from difficulty_service.base.float32_products import full_float32
from difficulty_service.base.wording import count_of, is_or_are
from difficulty_service.features.description import is_store, read_description
from difficulty_service.features.source import FeatureSource
from difficulty_service.features.store import FeatureStore, open_store
from difficulty_service.scores.explanation import Explanation, scored_by
from difficulty_service.scores.file import ScoreFile, read_score_schema, read_scores

SHIPPED_ATTRIBUTES = Path(__file__).with_name("attributes.txt")
FEWEST_ATTRIBUTES = 2


def read_attributes(path: Path = SHIPPED_ATTRIBUTES) -> list[str]:
    """Reads phrases, one on each line; empty lines and lines that start with # are left out."""
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(
            f"the attributes in {path} cannot be read: {error}", parameter="attributes"
        ) from error
    phrases = [line for line in lines if line and not line.startswith("#")]
    return check_attributes(phrases, str(path))


def check_attributes(phrases: list[str], place: str) -> list[str]:
    """The phrases, if images can be compared by them."""
    if len(phrases) < FEWEST_ATTRIBUTES:
        raise AuditError(
            f"{place} has {len(phrases)} attributes, but images are compared by at least "
            f"{FEWEST_ATTRIBUTES}",
            "write one phrase on each line",
            parameter="attributes",
        )
    repeated = sorted({phrase for phrase in phrases if phrases.count(phrase) > 1})
    if repeated:
        raise AuditError(f"{place} has {repeated[0]!r} more than once", parameter="attributes")
    return phrases


@full_float32()
def measure_similarities(
    source: FeatureSource, phrase_features: Tensor
) -> tuple[list[str], NDArray[np.float32]]:
    """Similarity of every image to every phrase, less that to the phrases on average, and the ids.

    The features of phrases are of unit length. Shape (samples, phrases).

    A similarity is the cosine of the features. What an image has in common with all phrases says
    nothing about any of them; without it, images that CLIP finds far from all text, as hard ones
    often are, would differ from the others in everything.
    """
    directions = phrase_features - phrase_features.mean(dim=0)
    sample_ids: list[str] = []
    similarities: list[Tensor] = []
    for shard in range(source.num_shards):
        opened = source.open_shard(shard)
        sample_ids += opened.sample_ids.to_pylist()
        similarities.append(F.normalize(opened.features(), dim=1) @ directions.T)
    return sample_ids, torch.cat(similarities).numpy()


def rows_of(sample_ids: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Row of each wanted sample, -1 where it has no features. Shape (wanted,)."""
    rows = {sample_id: row for row, sample_id in enumerate(sample_ids)}
    return np.array([rows.get(sample_id, -1) for sample_id in wanted], dtype=np.int64)


COLUMNS = ("sample_id", "label_name", "rmd")
"""Columns of a score file that an explanation needs."""

COPIES = "duplicate_of"
"""Column of copies, which are left out where a score file has it."""


def read_explained(path: Path) -> ScoreFile:
    """Reads the columns of a score file that an explanation is made from."""
    present = read_score_schema(path).names
    return read_scores(path, [*COLUMNS, *([COPIES] if COPIES in present else [])])


def choose_clip(scores: ScoreFile) -> str:
    """The backbone of the scores where it is a CLIP, else the default one."""
    backbone = str(scores.provenance.backbone)
    return backbone if is_clip(backbone) else DEFAULT_BACKBONE


def find_features(scores: ScoreFile, folder: Path, encoder: ClipTextEncoder) -> FeatureStore | None:
    """The features that were scored, if they are in the space that images share with words."""
    if not is_store(folder):
        return None
    known = read_description(folder)
    wanted = (encoder.name, encoder.weights_sha256, PROJECTED, scores.provenance.fingerprint)
    found = (known.backbone, known.weights_sha256, known.features, known.fingerprint)
    return open_store(folder) if found == wanted and not known.has_augmentation else None


def explain_scores(
    scores: ScoreFile, store: FeatureStore, encoder: ClipTextEncoder, phrases: Sequence[str]
) -> tuple[Explanation, Sequence[str]]:
    """Compares the samples that have a score and features; of copies, the first one."""
    table = scores.table.filter(scores.column("rmd").is_valid())
    if COPIES in table.column_names:
        table = table.filter(table[COPIES].is_null())
    sample_ids, similarities = measure_similarities(store, encoder.encode(phrases))
    rows = rows_of(sample_ids, table["sample_id"].to_pylist())
    known = rows >= 0
    missing = int((~known).sum())
    left_out = f"{count_of(missing, 'sample')} {is_or_are(missing)} left out without an image"
    explanation = explain(
        similarities[rows[known]],
        table["rmd"].to_numpy()[known],
        np.array(table["label_name"].to_pylist())[known].tolist(),
        phrases,
    )
    return explanation, [left_out] if missing else []


def write_explanation(
    path: Path, explanation: Explanation, scores: ScoreFile, encoder: ClipTextEncoder
) -> None:
    """Writes everything that was found, the CLIP that found it, and whose scores it explains."""
    origin = {
        "backbone": encoder.name,
        "weights_sha256": encoder.weights_sha256,
        "fingerprint": scores.provenance.fingerprint,
        "scores": scored_by(scores.provenance),
    }
    write_json(path, {**explanation.to_json(), **origin})
