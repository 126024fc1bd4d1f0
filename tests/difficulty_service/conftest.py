"""Six photographs, and scores of them."""

from pathlib import Path

import pytest

from difficulty_service.scores.file import ScoreFile
from tests.dataset_files import dataset_of
from tests.factories import png_of
from tests.score_files import make_scores


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
def photo_scores(photos: Path) -> ScoreFile:
    """Scores of the photographs."""
    dataset = dataset_of(photos)
    return make_scores(dataset.sample_ids, dataset=str(photos), fingerprint=dataset.fingerprint)
