"""Columns as attributes, and scores of some of the samples."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import difficulty_service as ds
from difficulty_service.interface.scores import Scores
from difficulty_service.interface.selection import Rows


def ids(scores: Scores) -> list[str]:
    found: list[str] = scores["sample_id"].to_pylist()
    return found


def test_a_column_is_an_attribute_that_completion_lists(scores: Scores) -> None:
    assert scores.rmd.dtype == np.float64
    assert scores.rmd.tolist() == scores["rmd"].to_pylist()
    assert set(scores.table.column_names) < set(dir(scores))
    assert {"hardest", "join", "plot"} < set(dir(scores))
    assert "agree" not in dir(scores)
    assert scores._ipython_key_completions_() == scores.table.column_names


def test_texts_are_compared_and_missing_numbers_are_nan(scores: Scores) -> None:
    table = scores.table.set_column(
        scores.table.column_names.index("nearest_label"),
        "nearest_label",
        pa.chunked_array([pa.array([None, *[1] * (len(scores) - 1)], pa.int32())]),
    )
    changed = scores._with(table)

    assert (scores.label_name == "1").sum() == 100
    assert np.isnan(changed.nearest_label[0])
    assert changed.nearest_label[1] == 1
    assert scores[:0].rmd.tolist() == []


def test_an_absent_column_is_an_attribute_error_with_the_remedy(scores: Scores) -> None:
    assert not hasattr(scores, "agree")
    with pytest.raises(AttributeError, match=r"has no agree; score with scorers='agree'"):
        scores.agree  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'rmd'"):
        scores.rdm  # noqa: B018


def test_copies_of_scores_are_scores(scores: Scores) -> None:
    assert copy.copy(scores).table == scores.table


@pytest.mark.parametrize(
    ("choose", "rows"),
    [
        (lambda _: slice(10, 20), range(10, 20)),
        (lambda _: slice(None, None, -100), (299, 199, 99)),
        (lambda scores: scores.label == 2, range(2, 300, 3)),
        (lambda scores: pd.Series(scores.label == 2), range(2, 300, 3)),
        (lambda scores: pa.array(scores.label == 2), range(2, 300, 3)),
        (lambda _: [True, *[False] * 299], (0,)),
        (lambda _: [7, -1], (7, 299)),
        (lambda _: [], ()),
        (lambda _: ["12", "3"], (12, 3)),
    ],
)
def test_samples_are_chosen_as_of_an_array(
    scores: Scores, choose: Callable[[Scores], Any], rows: Sequence[int]
) -> None:
    some = scores[choose(scores)]

    assert ids(some) == [str(row) for row in rows]
    assert some.provenance == scores.provenance
    assert some.warnings == scores.warnings


def test_a_position_gives_a_row(scores: Scores) -> None:
    assert scores[3] == scores.table.to_pylist()[3]
    assert scores[np.int64(-1)]["sample_id"] == "299"
    with pytest.raises(IndexError):
        scores[300]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["x", "3"], r"1 of 2 ids is of no sample, such as \['x'\]; sample ids look like \['0'"),
        (
            ["rmd", "label"],
            r"selects samples by their ids; .*scores.table.select\(\['rmd', 'label'",
        ),
        ([300], "no sample 300: the scores are of 300 samples"),
        (np.zeros(3, bool), "a mask of 3 values cannot select of 300 samples"),
        ([1.5], "are of type float64; give a slice, a boolean"),
        (np.zeros((2, 2), bool), r"have shape \(2, 2\)"),
        ([True, None], "are of type object"),
    ],
)
def test_rows_that_are_not_there_are_named(scores: Scores, chosen: Rows, message: str) -> None:
    with pytest.raises(ds.errors.ScoreFileError, match=message):
        scores[chosen]


def test_scores_of_some_samples_are_saved_and_ranked(scores: Scores, tmp_path: Path) -> None:
    some = scores[scores.label == 1]

    opened = ds.open_scores(some.save(tmp_path / "some.parquet"))

    assert len(opened) == 100
    assert set(opened.label_name) == {"1"}
    assert some.hardest(1)["rmd"][0].as_py() == some.rmd.max()
