"""Another column from the easiest samples to the hardest."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr

from difficulty_service.base.errors import ReportError
from difficulty_service.reports.compared import bar_heights, compare
from difficulty_service.reports.joined_tables import read_dataset_columns
from difficulty_service.scores.samples import ScoredSamples, to_samples
from tests.dataset_files import dataset_of
from tests.score_files import random_scores


@pytest.fixture
def samples() -> ScoredSamples:
    return to_samples(random_scores(400, 4))


def column(samples: ScoredSamples, values: object) -> pa.Table:
    return pa.table({"sample_id": samples.ids, "value": pa.array(values)})


def twentieths(samples: ScoredSamples, values: np.ndarray) -> list[float]:
    return [float(part.mean()) for part in np.array_split(values[np.argsort(samples.rmd)], 20)]


def test_numbers_are_averaged_in_twentieths(samples: ScoredSamples) -> None:
    values = samples.rmd * 2 + np.random.default_rng(0).normal(0, 1, 400)

    compared = compare(samples, column(samples, values), "age")

    np.testing.assert_allclose(compared.means, twentieths(samples, values))
    assert (compared.meaning, compared.is_share) == ("Mean of age", False)
    assert f"difficulty: {spearmanr(samples.rmd, values).statistic:.2f} (" in compared.agreement


def test_votes_become_the_share_for_another_class(samples: ScoredSamples) -> None:
    votes = np.random.default_rng(0).integers(0, 9, (400, 4)) + 1

    compared = compare(samples, column(samples, votes.tolist()), "votes")

    elsewhere = 1 - votes[np.arange(400), samples.labels] / votes.sum(axis=1)
    np.testing.assert_allclose(compared.means, twentieths(samples, elsewhere))
    assert compared.meaning == "Share of votes for another class than the label"
    shares = votes / votes.sum(axis=1, keepdims=True)
    entropy = -(shares * np.log(shares)).sum(axis=1)
    expected = f"of its entropy with the difficulty: {spearmanr(samples.rmd, entropy)[0]:.2f} ("
    assert expected in compared.agreement


def test_labels_become_the_share_that_differs(samples: ScoredSamples) -> None:
    names = [f"class-{label:05d}" for label in samples.labels.tolist()]
    names[:60] = ["class-00000"] * 60

    compared = compare(samples, column(samples, names), "truth")

    differs = np.array(
        [name != samples.name_of(int(k)) for name, k in zip(names, samples.labels, strict=True)]
    )
    np.testing.assert_allclose(compared.means, twentieths(samples, differs.astype(float)))
    assert compared.meaning == "Share of samples where truth differs from the label's name"
    assert compared.agreement.startswith("45 of 400 samples.")


def test_samples_without_a_value_are_left_out(samples: ScoredSamples) -> None:
    values = [None if row < 100 else float(row) for row in range(400)]

    assert compare(samples, column(samples, values), "age").num_samples == 300


def test_bars_begin_at_0_or_at_the_smallest_mean_below_it(samples: ScoredSamples) -> None:
    above = compare(samples, column(samples, samples.rmd + 100), "age")
    below = compare(samples, column(samples, samples.rmd - 100), "age")

    assert bar_heights(above)[0] > 0.8
    assert (min(bar_heights(below)), max(bar_heights(above))) == (0, 1)


def test_a_column_without_order_is_an_error_that_names_it(samples: ScoredSamples) -> None:
    with pytest.raises(ReportError, match=r"'age' cannot be compared.*all 400 values are 7"):
        compare(samples, column(samples, [7.0] * 400), "age")


def test_a_column_of_the_dataset_is_joined_by_the_ids_or_by_the_order(tmp_path: Path) -> None:
    table = pa.table(
        {"key": ["a", "b"], "image": ["1.png", "2.png"], "label": ["x", "y"], "age": [3, 4]}
    )
    pq.write_table(table, tmp_path / "table.parquet")
    dataset = dataset_of(tmp_path / "table.parquet")

    by_order = read_dataset_columns(dataset, ["age"], None, "compare").to_pydict()
    by_id = read_dataset_columns(dataset, ["age"], "key", "compare").to_pydict()

    assert by_order == {"sample_id": list(dataset.sample_ids), "age": [3, 4]}
    assert by_id == {"sample_id": ["a", "b"], "age": [3, 4]}
    with pytest.raises(ReportError, match="'height' cannot be read"):
        read_dataset_columns(dataset, ["height"], None, "compare")


def test_rows_that_are_no_samples_need_a_column_of_ids(tmp_path: Path) -> None:
    table = pa.table(
        {"image": ["1.png", "2.png", "3.png"], "label": ["x", None, "y"], "age": [3, 4, 5]}
    )
    pq.write_table(table, tmp_path / "table.parquet")
    dataset = dataset_of(tmp_path / "table.parquet")

    with pytest.raises(ReportError, match=r"3 rows of .* are 2 samples"):
        read_dataset_columns(dataset, ["age"], None, "compare")
