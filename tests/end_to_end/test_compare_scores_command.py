"""`difficulty compare-scores` on score files that the command line wrote."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance

pytestmark = pytest.mark.analysis("audit")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


@pytest.fixture
def files(scored: Scored, tmp_path: Path) -> tuple[Path, Path]:
    """A score file, and one with noisier scores that lacks two samples."""
    first = scored[0] / "scores.parquet"
    contents = read_scores(first)
    table = contents.table.slice(2)
    scores = table["rmd"].to_numpy() + np.random.default_rng(0).normal(scale=20, size=len(table))
    index = table.column_names.index("rmd")
    second = tmp_path / "noisy.parquet"
    provenance = {**contents.provenance.to_json(), "fingerprint": "another"}
    write_scores(second, table.set_column(index, "rmd", [scores]), Provenance.of(provenance))
    return first, second


def test_two_score_files_are_compared_on_the_terminal_and_in_a_file(
    difficulty: Command, files: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "comparison.json"

    done = difficulty("compare-scores", *files, "--out", out, "--top", 5)

    assert done.returncode == 0, done.stderr
    one, other = (read_scores(file).table for file in files)
    expected = spearmanr(one["rmd"].to_numpy()[2:], other["rmd"].to_numpy()).statistic
    assert f"rank correlation of rmd {expected:.3f}" in done.stdout
    assert "2 samples are only in A: bird/000.png, bird/001.png" in done.stdout
    assert "598 samples are compared" in done.stdout
    assert "fingerprints differ" in done.stderr
    written = json.loads(out.read_text())
    assert written["spearman"] == pytest.approx(expected)
    assert written["only_first"] == ["bird/000.png", "bird/001.png"]
    assert len(written["moves"]) == 5
    assert written["moves"][0]["sample_id"] in done.stdout


def test_a_column_that_a_file_lacks_is_named(difficulty: Command, files: tuple[Path, Path]) -> None:
    misspelt = difficulty("compare-scores", *files, "--score-column", "rmdd")
    absent = difficulty("compare-scores", *files, "--score-column", "knn")

    assert misspelt.returncode == absent.returncode == 1
    words = " ".join(misspelt.stderr.split())
    assert "has no column 'rmdd'; did you mean 'rmd'?" in words
    assert "has no knn; score with --scorers knn" in " ".join(absent.stderr.split())


def test_an_unknown_format_is_refused_before_anything_is_read(
    difficulty: Command, tmp_path: Path
) -> None:
    done = difficulty("compare-scores", "a", "b", "--out", tmp_path / "comparison.txt")

    assert done.returncode == 1
    assert "expected is .html, .json" in done.stderr


def test_nothing_is_written_over_a_score_file(difficulty: Command, tmp_path: Path) -> None:
    scores = tmp_path / "scores.json"

    done = difficulty("compare-scores", scores, "b", "--out", scores)

    assert done.returncode == 2
    assert "would be overwritten" in done.stderr


def test_a_page_shows_the_images_that_moved(
    difficulty: Command, files: tuple[Path, Path], tmp_path: Path
) -> None:
    page = tmp_path / "comparison.html"

    done = difficulty("compare-scores", *files, "--out", page, "--top", 3)

    assert done.returncode == 0, done.stderr
    html = page.read_text()
    assert html.count("data:image/webp;base64,") == 3
    assert "of the 6 hardest images" in html


def test_images_need_a_page(difficulty: Command, files: tuple[Path, Path]) -> None:
    done = difficulty("compare-scores", *files, "--images", "photos")

    assert done.returncode == 2
    assert "--images needs a page: --out NAME.html" in done.stderr
