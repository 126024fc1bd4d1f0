"""From scores and marks to a cleaned dataset that can be scored again."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from difficulty_service.scores.file import read_scores
from tests.factories import write_image_folder

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    path = tmp_path / "marks.csv"
    path.write_text("sample_id,mark,label\nbird/000.png,drop,\ncat/001.png,relabel,dog\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cleaned.csv", "cleaned.parquet", "cleaned"])
def test_a_cleaned_dataset_is_scored_like_any_other(
    difficulty: Command,
    scored: Scored,
    network: tuple[str, ...],
    marks: Path,
    tmp_path: Path,
    name: str,
) -> None:
    scores, out = scored[0] / "scores.parquet", tmp_path / name
    ids = () if name == "cleaned" else ("--id-column", "sample_id")

    cleaned = difficulty("clean", scores, "--marks", marks, "--out", out)
    again = difficulty("score", out, *ids, "--out", tmp_path / "again.parquet", *network)

    assert cleaned.returncode == 0, cleaned.stderr
    assert "599 of 600 samples are kept, 1 of them with another label" in cleaned.stdout
    assert again.returncode == 0, again.stderr
    table = read_scores(tmp_path / "again.parquet", ["sample_id", "label_name"]).table
    labels = dict(zip(*table.to_pydict().values(), strict=True))
    assert len(labels) == 599
    assert "bird/000.png" not in labels
    if name == "cleaned":
        assert labels["dog/001-2.png"] == "dog"
    else:
        assert labels["cat/001.png"] == "dog"


def test_samples_are_dropped_by_a_condition(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores, out = scored[0] / "scores.parquet", tmp_path / "cleaned.parquet"

    done = difficulty("clean", scores, "--drop", "percentile > 0.9", "--out", out)

    assert done.returncode == 0, done.stderr
    percentiles = np.array(read_scores(scores, ["percentile"]).table["percentile"])
    assert len(pq.read_table(out)) == (percentiles <= 0.9).sum() == 540


def test_where_nothing_is_dropped_no_list_of_the_others_is_named(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    out = tmp_path / "cleaned.csv"

    done = difficulty(
        "clean", scored[0] / "scores.parquet", "--drop", "percentile > 2", "--out", out
    )

    assert done.returncode == 0, done.stderr
    assert "0 are dropped" in done.stdout
    assert f"samples are in {out}" in done.stdout
    assert "cleaned.dropped.csv" not in done.stdout


def test_surplus_copies_are_dropped_listed_and_counted(
    difficulty: Command, network: tuple[str, ...], tmp_path: Path
) -> None:
    photos, scores = write_image_folder(tmp_path / "photos"), tmp_path / "scores.parquet"
    shutil.copy(photos / "cat/0.png", photos / "cat/again.png")
    shutil.copy(photos / "dog/0.png", photos / "bird/dog.png")
    difficulty("score", photos, "--out", scores, *network)

    done = difficulty("clean", scores, "--drop-duplicates", "--out", tmp_path / "cleaned.csv")

    assert done.returncode == 0, done.stderr
    assert f"the others are listed in {tmp_path / 'cleaned.dropped.csv'}" in done.stdout
    assert (
        "3 are dropped\nof those, 1 copy of a kept sample and 2 copies with different labels\n"
    ) in done.stdout
    assert (tmp_path / "cleaned.dropped.csv").read_text().splitlines()[1:] == [
        '"bird/dog.png","bird","copies have different labels: bird, dog"',
        '"cat/again.png","cat","copy of cat/0.png"',
        '"dog/0.png","dog","copies have different labels: bird, dog"',
    ]


def test_a_condition_on_scores_that_were_not_asked_for_says_how_to_get_them(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores, out = scored[0] / "scores.parquet", tmp_path / "cleaned.csv"

    done = difficulty("clean", scores, "--drop", "agree > 0", "--out", out)

    assert done.returncode == 1
    assert done.stderr.strip().endswith("; score with --scorers agree")
    assert "'agree'" in done.stderr
    assert not out.exists()


@pytest.mark.slow
def test_the_rows_of_a_table_are_found_by_the_options_of_the_first_run(
    difficulty: Command, network: tuple[str, ...], photos: Path, tmp_path: Path
) -> None:
    files = sorted(photos.rglob("*.png"))
    lines = [f"{number},{path},{path.parent.name}" for number, path in enumerate(files)]
    (tmp_path / "table.csv").write_text("\n".join(["key,file,animal", *lines]))
    scores, out = tmp_path / "scores.parquet", tmp_path / "cleaned.csv"
    difficulty(
        *("score", tmp_path / "table.csv", "--out", scores, "--id-column", "key"),
        *("--label-column", "animal", *network),
    )

    done = difficulty("clean", scores, "--drop", "label_name == 'cat'", "--out", out)

    assert done.returncode == 0, done.stderr
    assert done.stderr == "warning: class 'cat' has no samples left\n"
    assert out.read_text().splitlines()[1] == f'"0","{files[0]}","bird","bird",'


def test_a_dry_run_writes_nothing(
    difficulty: Command, scored: Scored, marks: Path, tmp_path: Path
) -> None:
    done = difficulty(
        *("clean", scored[0] / "scores.parquet", "--marks", marks),
        *("--out", tmp_path / "cleaned", "--dry-run"),
    )

    assert done.returncode == 0, done.stderr
    assert "599 of 600 samples are kept" in done.stdout
    assert list(tmp_path.iterdir()) == [marks]


def test_a_list_is_written_without_images_where_the_dataset_is_gone(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    table = pq.read_table(scored[0] / "scores.parquet")
    described = table.schema.metadata[b"difficulty"].replace(b"/photos", b"/elsewhere")
    moved = tmp_path / "scores.parquet"
    pq.write_table(table.replace_schema_metadata({b"difficulty": described}), moved)

    listed = difficulty("clean", moved, "--drop", "rmd > 0", "--out", tmp_path / "list.csv")
    folder = difficulty("clean", moved, "--drop", "rmd > 0", "--out", tmp_path / "folder")

    assert listed.returncode == 0
    assert "no images are written" in listed.stderr
    assert "--images" in listed.stderr
    assert folder.returncode == 1
    assert "does not exist" in folder.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give --marks, --drop, --relabel or --drop-duplicates"),
        (("--drop", "rmd > 0", "--link"), "--link and --copy need a folder"),
        (("--drop", "rmd > 0", "--new-classes"), "--new-classes needs --marks"),
    ],
)
def test_an_option_without_effect_is_a_wrong_call(
    difficulty: Command, scored: Scored, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = difficulty("clean", scored[0] / "scores.parquet", "--out", tmp_path / "x.csv", *options)

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
