"""Phrases that describe photographs, and how similar images are to them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.errors import AuditError
from difficulty_service.feature_store.source import FeatureSource

SHIPPED_ATTRIBUTES = Path(__file__).with_name("attributes.txt")
FEWEST_ATTRIBUTES = 2


def read_attributes(path: Path = SHIPPED_ATTRIBUTES) -> list[str]:
    """Reads phrases, one on each line; empty lines and lines that start with # are left out.

    Raises:
        AuditError: The file cannot be read, has too few phrases, or one of them twice.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(
            f"the attributes in {path} cannot be read: {error}", parameter="attributes"
        ) from error
    phrases = [line for line in lines if line and not line.startswith("#")]
    return check_attributes(phrases, str(path))


def check_attributes(phrases: list[str], place: str) -> list[str]:
    """The phrases, if images can be compared by them.

    Args:
        phrases: The attributes.
        place: Where they come from, for the message.

    Raises:
        AuditError: They are too few, or one of them is there twice.
    """
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


def measure_similarities(
    source: FeatureSource, phrase_features: Tensor
) -> tuple[list[str], NDArray[np.float32]]:
    """Similarity of every image to every phrase, less that to the phrases on average.

    A similarity is the cosine of the features. What an image has in common with all phrases says
    nothing about any of them; without it, images that CLIP finds far from all text, as hard ones
    often are, would differ from the others in everything.

    Args:
        source: Projected features, one row per sample.
        phrase_features: Of unit length. Shape (phrases, dim).

    Returns:
        The sample ids, and the similarities of shape (samples, phrases).
    """
    directions = phrase_features - phrase_features.mean(dim=0)
    sample_ids: list[str] = []
    similarities: list[Tensor] = []
    for shard in range(source.num_parts):
        part = source.open_part(shard)
        sample_ids += part.sample_ids.to_pylist()
        similarities.append(F.normalize(part.features(), dim=1) @ directions.T)
    return sample_ids, torch.cat(similarities).numpy()


def rows_of(sample_ids: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Row of each wanted sample, -1 where it has no features. Shape (wanted,)."""
    rows = {sample_id: row for row, sample_id in enumerate(sample_ids)}
    return np.array([rows.get(sample_id, -1) for sample_id in wanted], dtype=np.int64)
