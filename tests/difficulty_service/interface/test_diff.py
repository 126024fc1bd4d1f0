"""`ds.diff` is the command, for features on disk or in memory."""

from pathlib import Path

import numpy as np
import pytest

import difficulty_service as ds
from difficulty_service.base.errors import ScoreFileError

pytestmark = pytest.mark.analysis("versions")


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Features of 100 samples, their labels, of three classes, and their ids."""
    generator = np.random.default_rng(0)
    labels = np.arange(100) % 3
    features = generator.standard_normal((100, 8)) + 4 * np.eye(3, 8)[labels]
    return features, np.array(["cat", "dog", "owl"])[labels], [f"s{row}" for row in range(100)]


@pytest.mark.filterwarnings("ignore:there are no pictures of new")
def test_arrays_are_compared_with_the_scores_that_are_given(
    arrays: tuple[np.ndarray, np.ndarray, list[str]], tmp_path: Path
) -> None:
    features, labels, ids = arrays
    old = (features[:80], labels[:80], ids[:80])
    later = labels.copy()
    later[5] = "cat"
    scores = ds.score(features, later, ids=ids, scorers="rmd", shrinkage=0.5)

    report = ds.diff(
        old,
        (features, later, ids),
        scores=scores,
        permutations=9,
        out=tmp_path / "changes.csv",
        report=tmp_path / "changes.html",
    )

    assert report.counts == {"kept": 80, "moved": 0, "changed": 0, "added": 20, "removed": 0}
    assert report.relabelled == 1
    assert report.table["score"].null_count == 0
    assert "s99" in (tmp_path / "changes.csv").read_text()
    assert "<b>20</b> of 100 samples are new" in (tmp_path / "changes.html").read_text()


def test_scores_of_other_samples_are_refused(
    arrays: tuple[np.ndarray, np.ndarray, list[str]],
) -> None:
    features, labels, _ = arrays
    scores = ds.score(features, labels, scorers="rmd", shrinkage=0.5)

    with pytest.raises(ScoreFileError, match="the scores are of no sample of new: their ids look"):
        ds.diff(arrays, arrays, scores=scores, permutations=0)


def test_arrays_are_matched_by_their_features_to_the_last_bit(
    arrays: tuple[np.ndarray, np.ndarray, list[str]],
) -> None:
    features, labels, ids = arrays
    later = features.copy()
    later[0, 0] = np.nextafter(np.float32(later[0, 0]), np.float32(9))

    report = ds.diff(arrays, (later[:99], labels[:99], [*ids[:98], "moved"]), permutations=0)

    assert report.counts == {"kept": 97, "moved": 1, "changed": 1, "added": 0, "removed": 1}


def test_options_out_of_bounds_are_errors(
    arrays: tuple[np.ndarray, np.ndarray, list[str]],
) -> None:
    with pytest.raises(ds.errors.ConfigError, match="permutations"):
        ds.diff(arrays, arrays, permutations=-1)


def test_images_without_a_page_are_refused(
    arrays: tuple[np.ndarray, np.ndarray, list[str]],
) -> None:
    with pytest.raises(ds.errors.ConfigError, match="images changes nothing without a page"):
        ds.diff(arrays, arrays, images="photos/")
