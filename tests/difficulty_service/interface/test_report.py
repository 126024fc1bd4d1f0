"""`ds.report`: a page from scores in memory or on disk."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import difficulty_service as ds
from tests.small_network import SMALL

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
    scores = ds.score_dataset(pairs, shrinkage="leave-one-out", progress=False, backbone=SMALL)

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

    assert "60 samples" in path.read_text("utf-8")


def test_columns_of_tables_are_in_the_page_and_what_does_not_match_is_a_warning(
    tmp_path: Path, pairs: list[tuple[Image.Image, str]]
) -> None:
    scores = ds.score_dataset(pairs, shrinkage="leave-one-out", progress=False, backbone=SMALL)
    ids = scores.table["sample_id"].to_pylist()
    rows = "".join(f"{each},{'ab'[row % 2]},{row}\n" for row, each in enumerate(ids[:-1]))
    (tmp_path / "table.csv").write_text(f"sample_id,</script>,weight\n{rows}")
    path = tmp_path / "report.html"

    for columns in (tmp_path / "table.csv", [f"{tmp_path}/table.csv:</script>"]):
        with pytest.warns(UserWarning, match=r"table\.csv: 1 of 40 samples have no row"):
            ds.report(scores, path, images=pairs, columns=columns)
        page = path.read_text("utf-8")

        assert '"name":"\\u003c/script>","kind":"category","texts":["a","b","(none)"]' in page
        assert ('"name":"weight"' in page) == (columns == tmp_path / "table.csv")
        assert "<bdi>&lt;/script&gt;</bdi>" in page
    with pytest.raises(ds.errors.ReportError, match="no column 'colour'"):
        ds.report(scores, path, images=pairs, columns=f"{tmp_path}/table.csv:colour")
    with pytest.raises(ds.errors.ReportError, match="columns of the dataset cannot be joined"):
        ds.report(scores, path, images=pairs, columns="dataset:colour")


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    features = np.random.default_rng(0).normal(size=(60, 4)) + 9 * np.eye(3, 4)[labels]
    scores = ds.score(features, labels)

    with pytest.raises(ds.errors.ReportError, match=r"expected is \.html"):
        ds.report(scores, tmp_path / "report.pdf")
    with pytest.raises(ds.errors.ReportError, match="no column 'age'"):
        ds.report(scores, tmp_path / "report.html", compare="age")
