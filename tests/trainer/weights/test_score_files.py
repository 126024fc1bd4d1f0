"""Score files of a run: the run reads images as they were scored."""

from pathlib import Path

import pytest

from difficulty_service.base.errors import ConfigError
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table
from trainer.config import FeatureData, ImageData
from trainer.weights.score_files import opening_once

SEEN = {"pixel_range": [100.0, 1000.0], "bands": [4, 3, 2]}
KEYS = {"pixel_range": "100:1e3", "bands": "4, 3, 2"}


def saved(folder: Path, **preprocessing: object) -> str:
    path = folder / "scores.parquet"
    table = score_table([0, 1], ("cat", "dog"), rmd=[0.0, 1.0])
    write_scores(path, table, Provenance(preprocessing=preprocessing))
    return str(path)


def test_images_that_are_seen_as_in_the_scores_are_trained_on(tmp_path: Path) -> None:
    with opening_once(ImageData(train="photos", **KEYS)) as score_files:
        assert score_files(saved(tmp_path, **SEEN)).provenance.preprocessing == SEEN


def test_features_are_what_they_are(tmp_path: Path) -> None:
    with opening_once(FeatureData(train="photos.features")) as score_files:
        assert score_files(saved(tmp_path, **SEEN)).provenance.preprocessing == SEEN


def test_scores_of_usual_images_leave_the_choice_to_the_recipe(tmp_path: Path) -> None:
    with opening_once(ImageData(train="photos", **KEYS)) as score_files:
        assert score_files(saved(tmp_path, height=32)).provenance.preprocessing == {"height": 32}


@pytest.mark.parametrize(
    "keys", [{}, {"pixel_range": "0:1000", "bands": "4,3,2"}, {"page": "last"}]
)
def test_scores_of_images_that_are_seen_in_another_way_are_refused(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    expected = r'data\.pixel_range = "100:1000" and data\.bands = "4,3,2"'

    with (
        pytest.raises(ConfigError, match=f"were scored with {expected}, .*; set {expected} and"),
        opening_once(ImageData(train="photos", **keys)) as score_files,
    ):
        score_files(saved(tmp_path, **SEEN))
