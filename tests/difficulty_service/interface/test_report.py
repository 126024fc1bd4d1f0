"""`ds.report`: a page from scores in memory or on disk."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import difficulty_service as ds

ROWS = 40


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Image.Image, str]]:
    """Noise of two brightnesses, with the labels of two rows exchanged."""
    generator = np.random.default_rng(0)
    labels = ["dark" if row % 2 else "light" for row in range(ROWS)]
    labels[0], labels[1] = labels[1], labels[0]
    return [
        (
            Image.fromarray(
                generator.integers(0, 90, (32, 32, 3), dtype=np.uint8)
                + np.uint8(160 * (1 - row % 2))
            ),
            label,
        )
        for row, label in enumerate(labels)
    ]


def test_scores_of_images_in_memory_have_pictures_where_the_images_are_given(
    tmp_path: Path, pairs: list[tuple[Image.Image, str]]
) -> None:
    scores = ds.score_dataset(pairs, shrinkage="leave-one-out", progress=False)

    path = ds.report(scores, tmp_path / "report.html", images=pairs, compare="md_agnostic")

    page = path.read_text("utf-8")
    assert page.count("data:image/webp") > ROWS
    assert "Mean of md_agnostic, from the easiest to the hardest images" in page


def test_without_images_a_warning_says_how_to_bring_them(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    scores = ds.score(generator.normal(size=(60, 4)) + 9 * np.eye(3, 4)[labels], labels)
    scores.save(tmp_path / "scores.parquet")

    for given in (scores, tmp_path / "scores.parquet"):
        with pytest.warns(UserWarning, match="there are no pictures"):
            path = ds.report(given, tmp_path / "report.html")

    assert "60 images" in path.read_text("utf-8")


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    features = np.random.default_rng(0).normal(size=(60, 4)) + 9 * np.eye(3, 4)[labels]
    scores = ds.score(features, labels)

    with pytest.raises(ds.errors.ReportError, match=r"expected is \.html"):
        ds.report(scores, tmp_path / "report.pdf")
    with pytest.raises(ds.errors.ReportError, match="no column 'age'"):
        ds.report(scores, tmp_path / "report.html", compare="age")
