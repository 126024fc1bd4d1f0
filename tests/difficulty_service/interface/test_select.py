"""`ds.select` is the command, for features on disk or in memory."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import difficulty_service as ds
from difficulty_service.base.errors import DatasetError, ScoreFileError
from tests.factories import store_of

pytestmark = pytest.mark.analysis("selection")


def test_arrays_are_chosen_from_by_their_ids(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    features, labels = arrays
    ids = [f"t{row}" for row in range(100)]

    chosen = ds.select((features, labels, ids), 9, strategy="diverse", balanced=True)

    assert set(chosen.sample_ids) < set(ids)
    assert chosen.classes == {"cat": 3, "dog": 3, "owl": 3}


def test_the_hardest_are_those_of_the_scores_and_the_marks_keep_them_only(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    features, labels = arrays
    scores = ds.score(features, labels, scorers="rmd", shrinkage=0.5)

    chosen = ds.select((features, labels), 90, strategy="hard", scores=scores)
    kept = ds.score(features, labels, scorers="rmd", shrinkage=0.5, marks=chosen.other_marks)

    assert chosen.sample_ids == scores.hardest(90)["sample_id"].to_pylist()
    assert set(kept["sample_id"].to_pylist()) == set(chosen.sample_ids)


def test_scores_of_other_samples_are_refused(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    features, labels = arrays
    ids = [f"t{row}" for row in range(100)]
    scores = ds.score(features, labels, scorers="rmd", shrinkage=0.5)

    with pytest.raises(ScoreFileError, match="the scores are of no sample of pool: their ids look"):
        ds.select((features, labels, ids), 9, strategy="hard", scores=scores)


def test_a_round_after_another_chooses_other_samples_and_writes_a_table(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    features, _ = arrays
    store = store_of(tmp_path / "pool", torch.from_numpy(features).float(), torch.zeros(100).long())

    first = ds.select(store.folder, 50)
    second = ds.select(store.folder, 50, chosen=first.sample_ids, out=tmp_path / "second.parquet")

    assert not set(first.sample_ids) & set(second.sample_ids)
    written = pq.read_table(tmp_path / "second.parquet")
    assert written["sample_id"].to_pylist() == second.sample_ids


def test_scores_in_place_of_samples_are_named(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(DatasetError, match="samples are of type Scores; pass the path"):
        ds.select(ds.score(*arrays, scorers="rmd", shrinkage=0.5), 9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "hardest"}, "did you mean 'hard'"),
        ({"by": "rmd"}, "by changes nothing for random"),
        ({"strategy": "hard"}, "needs scores; pass the result of ds.score as scores"),
        ({"count": 0}, "count"),
    ],
)
def test_options_that_cannot_work_are_errors(
    arrays: tuple[np.ndarray, np.ndarray], options: dict[str, object], message: str
) -> None:
    with pytest.raises(ds.errors.ConfigError, match=message):
        ds.select(arrays, **{"count": 3} | options)
