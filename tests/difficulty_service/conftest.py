"""Score files of a few samples, and the photographs that they are about."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.factories import png_of, score_table

CLASSES = ("bird", "cat", "dog")


@pytest.fixture
def make_scores() -> Callable[..., ScoreFile]:
    """Scores of two samples of each class; the margin grows from -3 to 2, one has no score."""

    def make(ids: Sequence[str] = tuple("abcdef"), **provenance: object) -> ScoreFile:
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

    return make


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two photographs of each class, of which one dog is in a folder of its own."""
    names = ("bird/0.png", "bird/1.png", "cat/0.png", "cat/1.png", "dog/0.png", "dog/new/1.png")
    for number, name in enumerate(names):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of((40 * number, 0, 0)))
    return tmp_path / "photos"


@pytest.fixture
def photo_scores(photos: Path, make_scores: Callable[..., ScoreFile]) -> ScoreFile:
    """Scores of the photographs."""
    dataset = open_dataset(str(photos), DatasetOptions())
    return make_scores(dataset.sample_ids, dataset=str(photos), fingerprint=dataset.fingerprint)
