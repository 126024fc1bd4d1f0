"""Two score files of the same samples, compared."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from difficulty_service.analyses.audit.score_comparison import (
    ScoreComparison,
    compare_scores,
    shared_hardest,
)
from difficulty_service.base.errors import AuditError
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

NAMES = np.array(["bird", "cat", "dog"])


def score_file(scores: np.ndarray, **columns: Any) -> ScoreFile:  # noqa: ANN401 - any column
    """A score file of three classes in turn; other columns replace the usual ones."""
    number = len(scores)
    labels = np.arange(number) % 3
    usual = {
        "ids": [f"{row:03d}.png" for row in range(number)],
        "rmd": scores,
        "nearest_label_name": NAMES[(labels + 1) % 3],
        "label_margin": np.where(np.arange(number) < number // 10, 1.0, -1.0),
    }
    table = score_table(labels, NAMES, **usual | columns)
    return ScoreFile(table, Provenance.of({"fingerprint": "f", "backbone": "builtin"}))


@pytest.fixture
def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=200)


def test_a_file_agrees_with_itself_in_everything(scores: np.ndarray) -> None:
    comparison = compare_scores(score_file(scores), score_file(scores))

    assert (comparison.spearman, comparison.low, comparison.high) == pytest.approx((1, 1, 1))
    assert [each.shared for each in comparison.hardest] == [2, 10, 20]
    assert [each.by_chance for each in comparison.hardest] == pytest.approx([0.02, 0.5, 2])
    assert comparison.doubts is not None
    assert (comparison.doubts.shared, comparison.doubts.same_class) == (20, 20)
    assert all(move.first == move.second for move in comparison.moves)
    assert comparison.warnings == []


def test_samples_are_matched_by_id_whatever_their_order(scores: np.ndarray) -> None:
    file = score_file(scores)
    rows = np.random.default_rng(1).permutation(200)

    comparison = compare_scores(file, ScoreFile(file.table.take(rows), file.provenance))

    assert comparison.spearman == pytest.approx(1)


def test_unrelated_scores_share_as_many_of_the_hardest_as_chance_would() -> None:
    rng = np.random.default_rng(0)

    shared = [shared_hardest(*rng.normal(size=(2, 500)), 0.1) for _ in range(300)]

    assert shared[0].by_chance == pytest.approx(5)
    assert np.mean([each.shared for each in shared]) == pytest.approx(5, abs=0.4)


def test_at_least_one_sample_counts_as_the_hardest() -> None:
    assert shared_hardest(np.arange(20.0), np.arange(20.0), 0.01).count == 1


def test_samples_of_one_file_and_samples_without_a_score_are_left_out(scores: np.ndarray) -> None:
    first, second = score_file(scores[:150]), score_file(np.where(scores > 2, np.nan, scores))
    renamed = [f"{row:03d}.png" for row in range(5, 205)]
    second = ScoreFile(second.table.set_column(0, "sample_id", pa.array(renamed)), Provenance())

    comparison = compare_scores(first, second)

    assert comparison.only_first == [f"{row:03d}.png" for row in range(5)]
    assert comparison.only_second == [f"{row:03d}.png" for row in range(150, 205)]
    missing = int((scores[:145] > 2).sum())
    assert (comparison.num_compared, comparison.num_without_score) == (145 - missing, missing)


def test_the_samples_that_moved_most_come_first(scores: np.ndarray) -> None:
    changed = scores.copy()
    easiest, hardest = scores.argmin(), scores.argmax()
    changed[easiest] = scores.max() + 1

    comparison = compare_scores(score_file(scores), score_file(changed), num_moves=3)

    move = comparison.moves[0]
    assert move.sample_id == f"{easiest:03d}.png"
    assert move.class_name == NAMES[easiest % 3]
    assert (move.first, move.second) == (0, 1)
    assert len(comparison.moves) == 3
    assert comparison.moves[1].sample_id != f"{hardest:03d}.png"


def test_the_class_whose_order_changed_comes_first(scores: np.ndarray) -> None:
    changed = scores.copy()
    changed[1::3] = -scores[1::3]

    classes = compare_scores(score_file(scores), score_file(changed)).classes

    assert [each.name for each in classes] == ["cat", "bird", "dog"]
    assert [each.num_samples for each in classes] == [67, 67, 66]
    assert [each.spearman for each in classes] == pytest.approx([-1, 1, 1])


def test_a_small_class_has_no_correlation_and_comes_last(scores: np.ndarray) -> None:
    names = np.array(["bird", *["dog"] * 199])

    first, second = (score_file(each, label_name=names) for each in (scores, scores[::-1]))

    classes = compare_scores(first, second).classes
    assert (classes[-1].name, classes[-1].spearman) == ("bird", None)


def test_doubts_are_shared_where_both_margins_are_above_0(scores: np.ndarray) -> None:
    margins = np.where((np.arange(200) >= 10) & (np.arange(200) < 40), 1.0, -1.0)
    nearest = np.where(np.arange(200) < 15, NAMES[(np.arange(200) + 1) % 3], "dog")

    doubts = compare_scores(
        score_file(scores), score_file(scores, label_margin=margins, nearest_label_name=nearest)
    ).doubts

    assert doubts is not None
    assert (doubts.in_first, doubts.in_second, doubts.shared) == (20, 30, 10)
    assert doubts.by_chance == pytest.approx(3)
    # Five of the ten have their own next class, and two of the other five are cats: cat, then dog.
    assert doubts.same_class == 7


def test_files_without_margins_have_no_doubts(scores: np.ndarray) -> None:
    file = score_file(scores, label_margin=pa.nulls(200))

    assert compare_scores(file, file).doubts is None


def warnings_of(first: ScoreFile, second: ScoreFile) -> str:
    return " ".join(compare_scores(first, second).warnings)


def test_another_fingerprint_and_other_labels_are_warned_about(scores: np.ndarray) -> None:
    file = score_file(scores)
    names = NAMES[np.arange(200) % 3]
    names[:2] = "cat"
    other = ScoreFile(
        score_file(scores, label_name=names).table, Provenance.of({"fingerprint": "g"})
    )

    assert "fingerprints differ" in warnings_of(file, other)
    assert "1 sample has another label" in warnings_of(file, other)
    assert "does not name its dataset" in warnings_of(file, ScoreFile(file.table, Provenance()))


def test_files_of_different_samples_are_refused(scores: np.ndarray) -> None:
    other = score_file(scores, sample_id=[f"other/{row}" for row in range(200)])

    with pytest.raises(AuditError, match="none of 200 sample ids"):
        compare_scores(score_file(scores), other)


def test_another_column_can_be_compared(scores: np.ndarray) -> None:
    file = score_file(scores, knn=-scores)

    comparison: ScoreComparison = compare_scores(file, score_file(scores, knn=scores), "knn")

    assert comparison.spearman == pytest.approx(-1)


def test_the_result_is_plain_json(scores: np.ndarray) -> None:
    file = score_file(scores)

    values = json.loads(json.dumps(compare_scores(file, file).to_json(), allow_nan=False))

    assert values["format_version"] == 1
    assert values["hardest"][0] == {"share": 0.01, "count": 2, "shared": 2, "by_chance": 0.02}
    assert values["classes"][0]["name"] == "bird"
