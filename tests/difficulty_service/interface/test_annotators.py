"""`ds.annotators` is the command, for scores and tables that a program holds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import difficulty_service as ds
from difficulty_service.interface.scores import Scores
from difficulty_service.marks.files import read_marks
from tests.overlapping_classes import FEATURES, LABELS

pytestmark = pytest.mark.analysis("annotators")


def votes_of(labels: NDArray[np.int64]) -> pd.DataFrame:
    """Three annotators, two of whom always say what the label is."""
    other = np.where(np.arange(len(labels)) % 4 == 0, (labels + 1) % (labels.max() + 1), labels)
    ids = [str(row) for row in range(len(labels))]
    return pd.DataFrame({"sample_id": ids, "ann": labels, "bob": labels, "cleo": other})


def test_scores_and_a_data_frame_give_tables_of_samples_and_annotators(scores: Scores) -> None:
    report = ds.annotators(scores, votes_of(LABELS))

    assert report.samples["sample_id"].to_pylist() == scores["sample_id"].to_pylist()
    rates = dict(
        zip(
            *(report.annotators[name].to_pylist() for name in ("annotator", "error_rate")),
            strict=True,
        )
    )
    assert rates["cleo"] > rates["ann"]
    assert report.alpha is not None
    assert report.alpha < 1


def test_files_of_scores_and_labels_give_the_same_as_tables(scores: Scores, tmp_path: Path) -> None:
    votes_of(LABELS).to_csv(tmp_path / "votes.csv", index=False)

    of_files = ds.annotators(scores.save(tmp_path / "scores.parquet"), tmp_path / "votes.csv")

    assert of_files.samples.equals(ds.annotators(scores, votes_of(LABELS)).samples)


def test_the_marks_score_the_samples_again_with_the_consensus() -> None:
    given = LABELS.copy()
    given[:5] = (LABELS[:5] + 1) % (LABELS.max() + 1)
    report = ds.annotators(ds.score(FEATURES, given), votes_of(LABELS))

    again = ds.score(FEATURES, given, marks=report.marks)

    assert set(report.marks["sample_id"].to_pylist()) <= {str(row) for row in range(5)}
    assert len(report.marks)
    relabelled = {row["sample_id"]: row["label"] for row in again.table.to_pylist()}
    for row in report.marks.to_pylist():
        assert str(relabelled[row["sample_id"]]) == row["label"]


def test_the_written_list_is_one_of_marks_and_the_annotators_are_beside_it(
    scores: Scores, tmp_path: Path
) -> None:
    wrong = LABELS.copy()
    wrong[:5] = (LABELS[:5] + 1) % (LABELS.max() + 1)

    report = ds.annotators(scores, votes_of(wrong), sure=0.5, out=tmp_path / "consensus.csv")

    marks = read_marks(tmp_path / "consensus.csv", ())
    assert list(marks.samples) == report.marks["sample_id"].to_pylist()
    beside = pd.read_csv(tmp_path / "consensus.annotators.csv")
    assert beside["annotator"].tolist() == ["ann", "bob", "cleo"]


def test_a_warning_tells_what_was_left_out(scores: Scores) -> None:
    votes = votes_of(LABELS).astype({"ann": object})
    votes.loc[0, "ann"] = "zebra"
    votes["ann"] = votes["ann"].astype(str)

    with pytest.warns(UserWarning, match="of no class of the dataset"):
        ds.annotators(scores, votes)


@pytest.mark.parametrize("sure", [0.0, 1.1])
def test_a_bound_that_is_no_probability_is_an_error(scores: Scores, sure: float) -> None:
    with pytest.raises(ds.errors.ConfigError, match="above 0 and at most 1"):
        ds.annotators(scores, votes_of(LABELS), sure=sure)


def test_scores_without_the_classes_that_fit_best_are_an_error() -> None:
    fewer = ds.score(FEATURES, LABELS, scorers=("rmd",))

    with pytest.raises(ds.errors.ScoreFileError, match="first_label"):
        ds.annotators(fewer, votes_of(LABELS))
