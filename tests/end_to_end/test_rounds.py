"""Rounds of review by the commands: what was decided holds for every later run."""

import csv
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from difficulty_service.scores.file import read_scores
from tests.factories import write_image_folder

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]

WRONG, KEPT, DROPPED = "cat/wrong.png", "bird/3.png", "dog/4.png"
MARKS = f"sample_id,mark,label\n{WRONG},relabel,dog\n{KEPT},keep,\n{DROPPED},drop,\n"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of ten images, of which one lies in the folder of another class."""
    folder = write_image_folder(tmp_path / "photos", each=10)
    (folder / "dog" / "5.png").rename(folder / WRONG)
    return folder


@pytest.fixture
def scores(difficulty: Command, photos: Path, network: tuple[str, ...], tmp_path: Path) -> Path:
    """Scores of the images, after a first round with marks."""
    out = tmp_path / "scores.parquet"
    assert difficulty("score", photos, "--out", out, *network).returncode == 0
    marks = tmp_path / "marks.csv"
    marks.write_text(MARKS)

    done = difficulty("score", tmp_path / "scores.features", "--out", out, "--marks", marks)

    assert done.returncode == 0, done.stderr
    remembered = tmp_path / "scores.marks.csv"
    assert f"3 decisions remembered in {remembered}" in done.stderr.replace("\n", " ")
    expected = r"^Round 2: 1 relabelled, 1 dropped, 1 kept · \d newly doubtful$"
    assert re.search(expected, done.stdout, re.MULTILINE), done.stdout
    assert "labels that nobody has verified" in done.stdout.replace("\n", " ")
    return out


def labels_and_marks(scores: Path) -> Mapping[str, tuple[str, str | None]]:
    columns = read_scores(scores, ["sample_id", "label_name", "mark"]).table.to_pydict()
    return {sample_id: (label, mark) for sample_id, label, mark in zip(*columns.values())}  # noqa: B905


def test_the_next_scores_follow_the_decisions(scores: Path) -> None:
    decided = labels_and_marks(scores)

    assert len(decided) == 29
    assert DROPPED not in decided
    assert decided[WRONG] == ("dog", "relabel")
    assert decided[KEPT] == ("bird", "keep")
    assert sum(mark is not None for _, mark in decided.values()) == 2


@pytest.mark.slow
def test_decisions_hold_after_files_have_moved(
    difficulty: Command, scores: Path, photos: Path, network: tuple[str, ...]
) -> None:
    (photos / WRONG).rename(photos / "cat" / "renamed.png")
    (photos / KEPT).rename(photos / "bird" / "elsewhere.png")

    done = difficulty("score", photos, "--out", scores, *network)

    assert done.returncode == 0, done.stderr
    decided = labels_and_marks(scores)
    assert decided["cat/renamed.png"] == ("dog", "relabel")
    assert decided["bird/elsewhere.png"] == ("bird", "keep")
    assert DROPPED not in decided
    assert "2 marks are of samples that have another id now" in done.stderr.replace("\n", " ")


@pytest.mark.slow
def test_decisions_hold_for_other_features(
    difficulty: Command, scores: Path, photos: Path, network: tuple[str, ...], tmp_path: Path
) -> None:
    out, remembered = tmp_path / "other.parquet", tmp_path / "scores.marks.csv"

    done = difficulty("score", photos, "--out", out, *network, "--flip", "--marks", remembered)

    assert done.returncode == 0, done.stderr
    assert labels_and_marks(out) == labels_and_marks(scores)


@pytest.mark.slow
def test_the_dataset_is_written_as_it_was_decided(
    difficulty: Command, scores: Path, tmp_path: Path
) -> None:
    out = tmp_path / "cleaned.csv"

    done = difficulty("clean", scores, "--out", out)

    assert (done.returncode, done.stderr) == (0, "")
    assert "29 of 30 samples are kept, 1 of them with another label; 1 is dropped" in done.stdout
    with out.open(newline="") as file:
        rows = {row["sample_id"]: row for row in csv.DictReader(file)}
    assert (rows[WRONG]["label"], rows[WRONG]["original_label"]) == ("dog", "cat")
    assert DROPPED not in rows
    assert DROPPED in out.with_name("cleaned.dropped.csv").read_text()


@pytest.mark.slow
def test_a_random_choice_tells_how_many_wrong_labels_are_left(
    difficulty: Command, scores: Path, tmp_path: Path
) -> None:
    (tmp_path / "marks.csv").write_text(
        "sample_id,mark,label,order\n"
        "bird/0.png,keep,,random\ncat/1.png,relabel,bird,random\ndog/0.png,keep,,random\n"
    )
    features = tmp_path / "scores.features"

    done = difficulty("score", features, "--out", scores, "--marks", tmp_path / "marks.csv")
    page = difficulty("report", scores, "--order", "random", "--out", tmp_path / "random.html")

    # Of 30, three were decided before; 1 of 3 are 8 of the other 24.
    said = (
        "Of 3 labels in a random order, 1 was wrong, so that about 8 labels are wrong and not found"
    )
    assert said in done.stdout.replace("\n", " ")
    assert page.returncode == 0, page.stderr
    text = (tmp_path / "random.html").read_text("utf-8")
    assert said in text
    strip = "Round 3: 2 relabelled, 1 dropped, 3 kept · "
    assert strip in done.stdout
    assert strip in text


@pytest.mark.slow
def test_a_round_is_taken_back_with_those_after_it_and_given_again(
    difficulty: Command, scores: Path, tmp_path: Path
) -> None:
    features, second = tmp_path / "scores.features", tmp_path / "second.csv"
    second.write_text("sample_id,mark\nbird/0.png,keep\n")
    again = difficulty("score", features, "--out", scores, "--marks", second)
    assert "Round 3: 1 relabelled, 1 dropped, 2 kept · " in again.stdout, again.stderr
    decided, remembered = labels_and_marks(scores), (tmp_path / "scores.marks.csv").read_text()

    unknown = difficulty("score", features, "--out", scores, "--undo-round", "3")
    both = difficulty("score", features, "--out", scores, "--undo-round", "2", "--marks", second)
    gone = difficulty("score", tmp_path / "gone", "--out", scores, "--undo-round", "2")
    assert (both.returncode, gone.returncode) == (2, 1)
    assert "run them in turn" in both.stderr.replace("\n", " ")
    assert (tmp_path / "scores.marks.csv").read_text() == remembered, "nothing is scored again"
    back = difficulty("score", features, "--out", scores, "--undo-round", "2")
    of_first = labels_and_marks(scores)
    first = difficulty("score", features, "--out", scores, "--undo-round", "1")
    of_none = read_scores(scores).table

    path = tmp_path / "scores.marks.csv"
    assert unknown.returncode == 1
    said = f"{path} has no decision of round 3; its rounds are 1 (3 decisions), 2 (1 decision)"
    assert said in unknown.stderr.replace("\n", " ")
    undone = [tmp_path / f"scores.marks.undone{number}.csv" for number in ("", "-2")]
    for done, counts, where in (
        (back, "from round 2 on: 0 relabelled, 0 dropped, 1 kept", undone[0]),
        (first, "from round 1 on: 1 relabelled, 1 dropped, 1 kept", undone[1]),
    ):
        assert done.returncode == 0, done.stderr
        told = done.stderr.replace("\n", " ")
        assert f"Taken back {counts}; --marks {where} gives them again" in told
    assert "Round 2: 1 relabelled, 1 dropped, 1 kept\n" in back.stdout
    assert of_first == {**decided, "bird/0.png": ("bird", None)}
    assert len(of_none) == 30
    assert "mark" not in of_none.column_names
    assert not path.exists()
    nothing = difficulty("score", features, "--out", scores, "--undo-round", "1")
    assert f"{path} remembers no decision" in nothing.stderr.replace("\n", " ")

    for each in reversed(undone):
        assert difficulty("score", features, "--out", scores, "--marks", each).returncode == 0
    assert path.read_text() == remembered
    assert labels_and_marks(scores) == decided


def test_marks_of_another_dataset_are_refused_before_anything_is_remembered(
    difficulty: Command, photos: Path, network: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "marks.csv").write_text("sample_id,mark\nelsewhere/1.png,drop\n")
    out = tmp_path / "scores.parquet"

    done = difficulty("score", photos, "--out", out, *network, "--marks", tmp_path / "marks.csv")

    assert done.returncode == 1
    assert "none of 1 marked sample is in the dataset" in done.stderr.replace("\n", " ")
    assert not out.exists()
    assert not (tmp_path / "scores.marks.csv").exists()
