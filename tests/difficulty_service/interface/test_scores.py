"""A table of scores: rankings, conversions, and a file that every other reader understands."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.interface.score import score
from difficulty_service.interface.scores import Scores, open_scores
from difficulty_service.scores.file import SCHEMA, ScoreFile
from difficulty_service.scores.score_columns import DEFAULT_SCORERS
from tests.overlapping_classes import FEATURES, LABELS


def test_the_hardest_come_first(scores: Scores) -> None:
    hardest = scores.hardest(4)["rmd"].to_pylist()

    assert hardest == sorted(scores["rmd"].to_pylist(), reverse=True)[:4]


def test_columns_says_what_each_column_is(scores: Scores) -> None:
    columns = scores.columns

    assert list(columns) == scores.table.column_names
    assert columns["rmd"] == "The difficulty, `md` minus `md_agnostic`."
    assert all(columns.values())


def test_the_clearest_margins_come_first_where_no_label_is_probably_wrong(
    scores: Scores,
) -> None:
    assert max(scores["suspicion"].to_pylist()) <= 0

    margins = scores.doubtful(4)["label_margin"].to_pylist()

    assert margins == sorted(scores["label_margin"].to_pylist(), reverse=True)[:4]


def test_labels_are_ordered_by_suspicion_where_one_is_probably_wrong() -> None:
    given = LABELS.copy()
    given[::50] = (given[::50] + 1) % 3
    scores = score(FEATURES + 3 * np.eye(3, FEATURES.shape[1])[LABELS], given)

    doubtful = scores.doubtful(4)["suspicion"].to_pylist()

    assert doubtful == sorted(scores["suspicion"].to_pylist(), reverse=True)[:4]


def test_samples_without_a_score_are_not_ranked() -> None:
    labels = np.arange(300) % 3
    labels[0] = 9

    with pytest.warns(UserWarning, match="no score for 1 of 300 samples"):
        scores = score(FEATURES, labels)

    assert scores["rmd"].null_count == 1
    assert len(scores.hardest(300)) == 299


def test_scores_are_converted_without_loss(scores: Scores) -> None:
    assert len(scores) == 300
    names = {*scores.to_arrow().column_names}
    assert scores.to_arrow().schema == pa.schema([each for each in SCHEMA if each.name in names])
    assert pa.table(scores) == scores.table
    assert scores.to_pandas()["rmd"].tolist() == scores["rmd"].to_pylist()


def test_columns_that_were_not_computed_are_absent_and_asked_for_by_name(scores: Scores) -> None:
    columns = set(scores.to_pandas().columns)

    assert columns >= {"rmd", "rmd_loo", "label_margin", "duplicate_of", "suspicion", "p_wrong"}
    assert not columns & {"rmd_std", "near_duplicate_of", "kmeans", "agree", "loss"}
    with pytest.raises(ScoreFileError, match=r"has no agree; .*scorers='agree'"):
        scores["agree"]


def test_a_saved_file_opens_again_with_its_provenance(scores: Scores, tmp_path: Path) -> None:
    opened = open_scores(scores.save(tmp_path / "new" / "scores.parquet"))

    assert opened.table == scores.table
    assert opened.provenance.class_names == ("0", "1", "2")
    assert opened.warnings == scores.warnings


def test_a_column_that_is_not_there_is_named(scores: Scores) -> None:
    with pytest.raises(ScoreFileError, match="no column 'rdm'"):
        scores["rdm"]


def test_a_notebook_shows_a_short_table_in_which_names_are_escaped() -> None:
    names = [f"<b>{label}" for label in LABELS]

    html = score(FEATURES, names)._repr_html_()

    assert "<b>" not in html
    assert "&lt;b&gt;1" in html
    assert "<caption>hardest</caption>" in html


@pytest.mark.parametrize(
    ("scorers", "caption"),
    [
        (("rmd",), "look more like another class"),
        (DEFAULT_SCORERS, "labels probably wrong"),
    ],
)
def test_a_notebook_lists_the_samples_that_look_more_like_another_class(
    scorers: Sequence[str], caption: str
) -> None:
    given = LABELS.copy()
    given[::50] = (given[::50] + 1) % 3
    apart = FEATURES + 3 * np.eye(3, FEATURES.shape[1], dtype=np.float32)[LABELS]

    scores = score(apart, given, scorers=scorers)

    table = scores._repr_html_().partition(f"<caption>{caption}</caption>")[2]
    ids = re.findall(r"<tr><td>(\d+)</td>", table.partition("<caption>")[0])
    assert ids == scores.doubtful(5)["sample_id"].to_pylist()
    assert {*ids} < {str(row) for row in range(0, 300, 50)}


def test_percentiles_run_from_the_easiest_to_the_hardest(scores: Scores) -> None:
    ordered = pc.sort_indices(scores["rmd"])

    percentiles = scores["percentile"].take(ordered).to_pylist()

    assert percentiles[0] == 0
    assert percentiles[-1] == 1
    assert percentiles == sorted(percentiles)


def test_a_notebook_lists_the_most_unusual_samples_where_no_classes_are_compared(
    scores: Scores,
) -> None:
    kept = ["sample_id", "label", "label_name", "md_agnostic", "percentile"]
    alone = Scores(ScoreFile(scores.table.select(kept), scores.provenance))

    html = alone._repr_html_()

    rows = alone.table.sort_by([("md_agnostic", "descending")])["sample_id"].to_pylist()
    assert "<caption>most unusual</caption>" in html
    assert re.findall(r"<tr><td>(\d+)</td>", html) == rows[:5]
