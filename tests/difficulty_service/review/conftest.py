"""Score files of a few samples, and the photographs that they are about."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.scores.file import ScoreFile, to_schema
from difficulty_service.scores.provenance import Provenance

CLASSES = ("bird", "cat", "dog")


@pytest.fixture
def make_scores() -> Callable[..., ScoreFile]:
    """Scores of two samples of each class; the margin grows from -3 to 2, one has no score."""

    def make(ids: Sequence[str] = tuple("abcdef"), **provenance: object) -> ScoreFile:
        labels = [0, 0, 1, 1, 2, 2][: len(ids)]
        known = {
            "sample_id": list(ids),
            "label": pa.array(labels, pa.int32()),
            "label_name": pa.array([CLASSES[label] for label in labels]).dictionary_encode(),
            "rmd": [-3.0, None, -1.0, 0.0, 1.0, 2.0][: len(ids)],
            "nearest_label": pa.array([0, 1, 1, 2, 0, 0][: len(ids)], pa.int32()),
            "label_margin": [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0][: len(ids)],
        }
        return ScoreFile(
            to_schema(pa.table(known)), Provenance.of({"class_names": list(CLASSES), **provenance})
        )

    return make


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two photographs of each class, of which one dog is in a folder of its own."""
    names = ("bird/0.png", "bird/1.png", "cat/0.png", "cat/1.png", "dog/0.png", "dog/new/1.png")
    for number, name in enumerate(names):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), 40 * number, np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def photo_scores(photos: Path, make_scores: Callable[..., ScoreFile]) -> ScoreFile:
    """Scores of the photographs."""
    dataset = open_dataset(str(photos), DatasetOptions())
    return make_scores(dataset.sample_ids, dataset=str(photos), fingerprint=dataset.fingerprint)
