"""Rounds of review that are taken back."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from difficulty_service.base.errors import CleaningError
from difficulty_service.scores.marks import (
    Mark,
    MarkedSample,
    marks_file,
    read_marks,
    remembered_marks,
    write_marks,
)
from difficulty_service.scores.rounds import take_back

KEEP = MarkedSample(Mark.KEEP, given="cat", content=b"x" * 32)
MARKS = {
    "of an edited file": KEEP,
    "first": replace(KEEP, round=1, order="random"),
    "second": MarkedSample(Mark.RELABEL, "dog", "cat", round=2),
    "third": MarkedSample(Mark.DROP, given="cat", round=3),
}


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """A score file, which does not exist, with marks of three rounds beside it."""
    path = tmp_path / "scores.parquet"
    write_marks(marks_file(path), MARKS)
    return path


@pytest.mark.parametrize(("number", "num_left"), [(3, 3), (2, 2), (1, 0)])
def test_what_is_taken_back_is_in_one_file_and_the_rest_in_the_other(
    scores: Path, number: int, num_left: int
) -> None:
    undone = take_back(scores, number).write(scores)

    left, taken = remembered_marks(scores).samples, read_marks(undone, ()).samples
    assert list(left) == list(MARKS)[:num_left]
    assert {**left, **taken} == MARKS


def test_no_file_of_taken_back_marks_is_replaced(scores: Path) -> None:
    names = []
    for _ in range(3):
        names.append(take_back(scores, 3).write(scores).name)
        write_marks(marks_file(scores), MARKS)

    assert names == [f"scores.marks.undone{number}.csv" for number in ("", "-2", "-3")]


def test_nothing_is_forgotten_where_it_cannot_be_kept(tmp_path: Path) -> None:
    # The marks are in the longest name that can be written, and what is taken back needs more.
    room = 255 - len(f"..marks.csv.{os.getpid()}.part")
    scores = tmp_path / f"{'s' * room}.parquet"
    write_marks(marks_file(scores), MARKS)

    with pytest.raises(OSError, match="File name too long"):
        take_back(scores, 2).write(scores)

    assert remembered_marks(scores).samples == MARKS


@pytest.mark.parametrize("number", [0, 4])
def test_an_unknown_round_is_refused_with_those_that_there_are(scores: Path, number: int) -> None:
    rounds = r"its rounds are 1 \(2 decisions\), 2 \(1 decision\), 3 \(1 decision\)"
    with pytest.raises(CleaningError, match=rounds):
        take_back(scores, number)


def test_without_marks_there_is_nothing_to_take_back(tmp_path: Path) -> None:
    with pytest.raises(CleaningError, match=r"scores\.marks\.csv remembers no decision"):
        take_back(tmp_path / "scores.parquet", 1)
