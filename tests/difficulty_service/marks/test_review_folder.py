"""The files of a review: what is remembered, and what is taken back."""

from dataclasses import replace
from pathlib import Path

import pytest

from difficulty_service.base.errors import CleaningError, ConfigError
from difficulty_service.base.files import temporary_path
from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, Marks
from difficulty_service.marks.review_folder import ReviewFolder

KEEP = MarkedSample("edited", Mark.KEEP, given_label="cat", content="78" * 32)
MARKS = [
    KEEP,
    replace(KEEP, sample_id="first", round=1, order="random"),
    MarkedSample("second", Mark.RELABEL, "dog", "cat", round=2),
    MarkedSample("third", Mark.DROP, given_label="cat", round=3),
]
"""Marks of three rounds; the first line was added by hand."""


@pytest.fixture
def folder(tmp_path: Path) -> ReviewFolder:
    """The files of scores, which do not exist, with marks of three rounds."""
    folder = ReviewFolder(tmp_path / "scores.parquet")
    folder.remember(MARKS)
    return folder


def take_back(folder: ReviewFolder, number: int) -> Path:
    """Takes a round back; gives the file of what is taken back."""
    review = folder.open(undo_round=number)
    review.take_back()
    assert review.undone is not None
    return review.undone.file


@pytest.mark.parametrize(("number", "num_left"), [(3, 3), (2, 2), (1, 0)])
def test_what_is_taken_back_is_in_one_file_and_the_rest_in_the_other(
    folder: ReviewFolder, number: int, num_left: int
) -> None:
    undone = take_back(folder, number)

    left, taken = folder.remembered().samples, read_marks(undone, ()).samples
    assert [*left.values()] == MARKS[:num_left]
    assert [*left.values(), *taken.values()] == MARKS


def test_opening_a_review_changes_no_file(folder: ReviewFolder, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    review = folder.open(undo_round=2)

    assert [*review.history.earlier.samples.values()] == MARKS[:2]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_decisions_are_not_added_and_taken_back_at_once(folder: ReviewFolder) -> None:
    with pytest.raises(ConfigError, match="run them in turn") as caught:
        folder.open(Marks.of(MARKS), 2)

    assert caught.value.parameter == "undo_round"


def test_no_file_of_taken_back_marks_is_replaced(folder: ReviewFolder) -> None:
    names = []
    for _ in range(3):
        names.append(take_back(folder, 3).name)
        folder.remember(MARKS)

    assert names == [f"scores.marks.undone{number}.csv" for number in ("", "-2", "-3")]


def test_nothing_is_forgotten_where_it_cannot_be_kept(tmp_path: Path) -> None:
    # The marks are in the longest name that can be written, and what is taken back needs more.
    room = 255 - len(temporary_path(Path(".marks.csv")).name)
    folder = ReviewFolder(tmp_path / f"{'s' * room}.parquet")
    folder.remember(MARKS)

    with pytest.raises(OSError, match="File name too long"):
        take_back(folder, 2)

    assert [*folder.remembered().samples.values()] == MARKS


@pytest.mark.parametrize("number", [0, 4])
def test_an_unknown_round_is_refused_with_those_that_there_are(
    folder: ReviewFolder, number: int
) -> None:
    rounds = r"its rounds are 1 \(2 decisions\), 2 \(1 decision\), 3 \(1 decision\)"
    with pytest.raises(CleaningError, match=rounds):
        folder.open(undo_round=number)


def test_without_marks_there_is_nothing_to_take_back(tmp_path: Path) -> None:
    with pytest.raises(CleaningError, match=r"scores\.marks\.csv remembers no decision"):
        ReviewFolder(tmp_path / "scores.parquet").open(undo_round=1)
