"""Percentiles of scores that come in batches."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import rankdata

from difficulty_service.scoring.ranking import percentiles, unranked_scores


def test_percentiles_go_from_the_easiest_to_the_hardest() -> None:
    scores = np.array([5.0, 1.0, np.nan, 3.0, 3.0])

    result = percentiles(scores, np.array([1.0, 3.0, 3.0, 5.0]))

    np.testing.assert_array_equal(result, np.array([1, 0, np.nan, 0.5, 0.5], np.float32))


@pytest.mark.parametrize("scores", [[], [7.0]])
def test_a_score_without_another_has_no_percentile(scores: list[float]) -> None:
    result = percentiles(np.array([7.0, np.nan]), np.array(scores))

    assert np.isnan(result).all()


def test_batches_come_back_with_their_place_among_all(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 60, 300).astype(np.float64)
    scores[generator.choice(300, 20, replace=False)] = np.nan
    expected = np.full(300, np.nan)
    known = ~np.isnan(scores)
    expected[known] = (rankdata(scores[known]) - 1) / (known.sum() - 1)

    with unranked_scores(tmp_path / "new") as rows:
        for start in range(0, 300, 70):
            values = pa.array(scores[start : start + 70], from_pandas=True)
            ids = pa.array([f"s{start + row}" for row in range(len(values))])
            rows.append(pa.record_batch({"rmd": values, "sample_id": ids}))
        table = pa.Table.from_batches(rows.ranked())

    assert table["sample_id"].to_pylist() == [f"s{row}" for row in range(300)]
    np.testing.assert_array_equal(table["percentile"].to_numpy(), expected.astype(np.float32))


def test_many_batches_with_names_are_ranked_side_by_side(tmp_path: Path) -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", "b"]))

    with unranked_scores(tmp_path) as rows:
        for number in range(400):
            rows.append(pa.record_batch({"rmd": [2.0 * number, 2.0 * number + 1], "name": names}))
        table = pa.Table.from_batches(rows.ranked())

    np.testing.assert_allclose(table["percentile"].to_numpy(), np.arange(800) / 799, rtol=1e-6)
    assert table["name"].to_pylist() == ["a", "b"] * 400


def test_scores_that_are_all_missing_have_no_percentile(tmp_path: Path) -> None:
    with unranked_scores(tmp_path) as rows:
        rows.append(pa.record_batch({"rmd": pa.nulls(3, pa.float64())}))
        (batch,) = rows.ranked()

    assert batch["percentile"].null_count == 3


def test_no_batch_is_nothing(tmp_path: Path) -> None:
    with unranked_scores(tmp_path) as rows:
        assert list(rows.ranked()) == []


def test_nothing_is_left_in_the_folder_even_while_at_work(tmp_path: Path) -> None:
    with unranked_scores(tmp_path) as rows:
        rows.append(pa.record_batch({"rmd": [1.0]}))
        assert list(tmp_path.iterdir()) == []
