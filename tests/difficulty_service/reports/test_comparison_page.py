"""The page of two compared score files, by its numbers."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from difficulty_service.analyses.audit.comparison_page import (
    LISTED_CLASSES,
    ComparedFile,
    shades_of,
    write_comparison,
)
from difficulty_service.analyses.audit.score_comparison import compare_scores
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

pytestmark = pytest.mark.analysis("audit")


def score_file(number: int, classes: int, seed: int) -> ScoreFile:
    table = score_table(
        np.arange(number) % classes,
        [f"class {label}" for label in range(classes)],
        [f"{row:06d}.png" for row in range(number)],
        rmd=np.random.default_rng(seed).normal(size=number),
        nearest_label_name=pa.nulls(number, pa.string()),
        label_margin=pa.nulls(number, pa.float64()),
    )
    return ScoreFile(table, Provenance.of({"backbone": "builtin", "fingerprint": str(seed)}))


def page_of(first: ScoreFile, second: ScoreFile, path: Path) -> str:
    compared = [ComparedFile("a.parquet", first), ComparedFile("b.parquet", second)]
    assert write_comparison(path, compare_scores(first, second), compared) == []
    return path.read_text()


def test_the_page_has_the_warnings_and_what_is_in_one_file_only(tmp_path: Path) -> None:
    html = page_of(score_file(130, 3, 0), score_file(100, 3, 1), tmp_path / "page.html")

    assert "fingerprints differ" in html
    assert "30 images are in this file only: <bdi>000100.png</bdi>" in html
    assert "and more" in html
    assert "difficulty compare-scores … --images DATASET" in html


@pytest.mark.slow
def test_the_page_stays_small_with_many_classes_and_says_how_many_it_lists(
    tmp_path: Path,
) -> None:
    html = page_of(score_file(20_000, 1_000, 0), score_file(20_000, 1_000, 1), tmp_path / "p.html")

    assert f"{LISTED_CLASSES} of 1,000 classes are listed" in html
    assert len(html) < 100_000


def test_a_shade_grows_with_the_square_root_of_a_count() -> None:
    assert shades_of([[0, 1], [25, 100]]) == [[0, 1], [5, 9]]


@pytest.mark.parametrize("name", ["first", "second"])
def test_tenths_are_those_of_the_percentiles(name: str) -> None:
    first = score_file(1000, 3, 0)

    tenths = np.array(compare_scores(first, score_file(1000, 3, 1)).tenths)

    assert tenths.sum(axis=1 if name == "first" else 0).tolist() == [100] * 10
    assert np.diag(compare_scores(first, first).tenths).tolist() == [100] * 10
