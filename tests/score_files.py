"""Scores of a few samples, or of many at random, without images."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from difficulty_service.scores.file import SCHEMA, ScoreFile, to_schema
from difficulty_service.scores.provenance import Provenance
from tests.factories import CLASSES, score_table


def make_scores(ids: Sequence[str] = tuple("abcdef"), **provenance: object) -> ScoreFile:
    """Scores of two samples of each class; the margin grows from -3 to 2, one has no score."""
    labels = [0, 0, 1, 1, 2, 2][: len(ids)]
    table = score_table(
        labels,
        CLASSES,
        ids,
        rmd=[-3.0, None, -1.0, 0.0, 1.0, 2.0][: len(ids)],
        nearest_label=[0, 1, 1, 2, 0, 0][: len(ids)],
        label_margin=[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0][: len(ids)],
    )
    return ScoreFile(table, Provenance.of({"class_names": CLASSES, **provenance}))


def random_scores(
    num_samples: int = 600,
    num_classes: int = 3,
    *,
    ids: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    **columns: object,
) -> ScoreFile:
    """Scores of which a sixth, spread over all classes, looks like the next class."""
    generator = np.random.default_rng(3)
    labels = np.arange(num_samples) % num_classes
    doubtful = np.arange(num_samples) // num_classes % 6 == 0
    margins = np.where(doubtful, 1, -1) * generator.gamma(2, 5, num_samples)
    nearest = np.where(margins > 0, (labels + 1) % num_classes, labels)
    names = list(names or [f"class-{label:05d}" for label in range(num_classes)])
    known = {
        "sample_id": list(ids or [f"{row:07d}.png" for row in range(num_samples)]),
        "label": labels,
        "label_name": np.array(names)[labels].tolist(),
        "rmd": generator.normal(labels / num_classes, 3, num_samples),
        "md_agnostic": generator.gamma(50, 2, num_samples),
        "nearest_label": nearest,
        "label_margin": margins if num_classes > 1 else [None] * num_samples,
        "percentile": np.linspace(0, 1, num_samples),
        **columns,
    }
    table = pa.table(
        {
            field.name: pa.array(known[field.name]).cast(_plain(field.type))
            for field in SCHEMA
            if field.name in known
        }
    )
    return ScoreFile(
        to_schema(table),
        Provenance.of(
            {"class_names": names, "dataset": "photos", "fingerprint": f"{num_samples:064x}"}
        ),
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
