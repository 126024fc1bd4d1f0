"""Tags of images, by the commands that a person types, up to the table with the right tags."""

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

import difficulty_service as ds
from difficulty_service.base.errors import DatasetError, ScoreFileError

pytestmark = pytest.mark.analysis("tags")

Command = Callable[..., subprocess.CompletedProcess[str]]

SAMPLES = 240
TAGS = ("bright", "red", "wide")
WRONG, MISSING = 7, 21
"""A sample whose tag `red` is wrong, and one whose tag `wide` is missing."""


@pytest.fixture(scope="module")
def right() -> np.ndarray:
    """Which tags samples have. Shape (samples, tags)."""
    has = np.random.default_rng(0).random((SAMPLES, 3)) < 0.4
    has[WRONG], has[MISSING] = (True, False, False), (False, False, True)
    return has


@pytest.fixture(scope="module")
def vectors(right: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(1).standard_normal((SAMPLES, 8))
    return (noise + 6 * right @ np.eye(3, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def given(right: np.ndarray) -> list[list[str]]:
    has = right.copy()
    has[WRONG, 1], has[MISSING, 2] = True, False
    return [[tag for tag, each in zip(TAGS, row, strict=True) if each] for row in has]


@pytest.fixture
def folder(tmp_path: Path, vectors: np.ndarray, given: list[list[str]]) -> Path:
    """Features with images beside them, and a table of tags by the ids of the images."""
    ids = [f"{row:03}.png" for row in range(SAMPLES)]
    np.savez(tmp_path / "vectors.npz", features=vectors, labels=np.zeros(SAMPLES, int), ids=ids)
    with (tmp_path / "tags.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "tags", "note"])
        for row, (name, tags) in enumerate(zip(ids, given, strict=True)):
            writer.writerow([name, "|".join(tags), f"{row}.50"])
    return tmp_path


def test_decided_tags_alone_change_in_the_table(difficulty: Command, folder: Path) -> None:
    scores, table = folder / "decisions.parquet", folder / "tags.csv"

    scored = difficulty("tags", folder / "vectors.npz", table, "--out", scores)
    cleaned = difficulty(
        *("clean", scores, "--relabel", "p_wrong > 0.5", "--out", folder / "cleaned.csv")
    )

    assert scored.returncode == 0, scored.stderr
    assert "3 tags of 240 samples" in scored.stdout
    assert cleaned.returncode == 0, cleaned.stderr
    before, after = (path.read_text().splitlines() for path in (table, folder / "cleaned.csv"))
    changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert changed == [
        ("007.png,bright|red,7.50", "007.png,bright,7.50"),
        ("021.png,,21.50", "021.png,wide,21.50"),
    ]
    seen = pd.read_csv(folder / "cleaned.csv").set_index("path")["tags"].fillna("")
    assert seen.loc["021.png"] == "wide"


def test_marks_of_people_go_before_conditions(difficulty: Command, folder: Path) -> None:
    scores, cleaned = folder / "decisions.parquet", folder / "cleaned.csv"
    difficulty("tags", folder / "vectors.npz", folder / "tags.csv", "--out", scores)
    (folder / "marks.csv").write_text(
        "sample_id,mark,label\n007.png#red,keep,\n021.png#wide,relabel,wide\n007.png#bright,relabel,"
        "not bright\n"
    )

    done = difficulty(
        *("clean", scores, "--marks", folder / "marks.csv", "--relabel", "p_wrong > 0.5"),
        *("--out", cleaned),
    )

    # Only a decision that has a row can be marked, and an improbable missing tag has none.
    assert done.returncode == 0, done.stderr
    lines = cleaned.read_text().splitlines()
    assert lines[1 + WRONG] == "007.png,red,7.50"
    assert lines[1 + MISSING] == "021.png,wide,21.50"


def test_the_table_of_tags_is_not_written_over_or_in_another_format(
    difficulty: Command, folder: Path
) -> None:
    scores = folder / "decisions.parquet"
    difficulty("tags", folder / "vectors.npz", folder / "tags.csv", "--out", scores)
    relabel = ("clean", scores, "--relabel", "p_wrong > 0.5", "--out")

    over = difficulty(*relabel, folder / "tags.csv")
    other = difficulty(*relabel, folder / "cleaned.parquet")

    assert "would be overwritten, but is read" in over.stderr
    assert "end the name in .csv" in other.stderr


def test_a_table_that_lies_elsewhere_is_named(difficulty: Command, folder: Path) -> None:
    scores, moved = folder / "decisions.parquet", folder / "moved.csv"
    difficulty("tags", folder / "vectors.npz", folder / "tags.csv", "--out", scores)
    (folder / "tags.csv").rename(moved)
    relabel = ("clean", scores, "--relabel", "p_wrong > 0.5", "--out", folder / "cleaned.csv")

    alone = difficulty(*relabel)
    useless = difficulty(*relabel, "--images", moved, "--split", "train")
    named = difficulty(*relabel, "--images", moved)

    assert "--images TABLE" in alone.stderr
    assert "--split changes nothing" in useless.stderr
    assert named.returncode == 0, named.stderr
    assert "007.png,bright,7.50" in (folder / "cleaned.csv").read_text()


@pytest.mark.slow
def test_a_report_shows_the_image_of_each_decision(
    difficulty: Command, tmp_path: Path, given: list[list[str]]
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    random = np.random.default_rng(0)
    for row in range(40):
        pixels = random.integers(0, 40, (16, 16, 3)) + 120 * np.array(["red" in given[row], 0, 0])
        Image.fromarray(pixels.astype(np.uint8)).save(photos / f"{row:03}.png")
    rows = [f"{row:03}.png,{'|'.join(given[row])}" for row in range(40)]
    (tmp_path / "tags.csv").write_text("\n".join(["path,tags", *rows]))
    features, scores = tmp_path / "photos.features", tmp_path / "decisions.parquet"
    difficulty("extract", photos, "--backbone", "builtin", "--out", features)
    difficulty("tags", features, tmp_path / "tags.csv", "--out", scores, "--least", 0.2)

    done = difficulty("report", scores, "--out", tmp_path / "report.html")

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "not red" in page
    assert page.count("data:image/") > 10
    assert "--out cleaned.csv" in done.stdout


def test_python_takes_features_and_lists(
    vectors: np.ndarray, given: list[list[str]], tmp_path: Path
) -> None:
    ids = [f"{row:03}.png" for row in range(SAMPLES)]

    found = ds.tags(vectors, given, ids=ids, out=tmp_path / "decisions.parquet")

    decisions = found.decisions.to_pandas().set_index("sample_id")
    sure = decisions[decisions["p_wrong"] > 0.5]
    assert sorted(sure.index) == ["007.png#red", "021.png#wide"]
    assert sure.loc["007.png#red", "label_name"] == "red"
    assert sure.loc["021.png#wide", "suggested_label_name"] == "wide"
    assert found.tags.to_pylist()[1]["given"] == sum("red" in each for each in given)
    assert 0 < found.wrong < 0.5
    assert pq.read_table(tmp_path / "decisions.by-tag.parquet") == found.tags


def test_lists_of_other_lengths_and_names_beside_features_are_refused(
    vectors: np.ndarray, given: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "x.features").mkdir()
    (tmp_path / "x.features" / "store.json").write_text("{}")

    with pytest.raises(DatasetError, match="239 lists of tags for 240 samples"):
        ds.tags(vectors, given[1:])
    with pytest.raises(ScoreFileError, match="would be mistaken for features of its rows"):
        ds.tags(vectors, given, out=tmp_path / "x.parquet")
