"""`ds.leaks` is the command, for features on disk or in memory."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
import torch

import difficulty_service as ds
from tests.factories import store_of

pytestmark = pytest.mark.analysis("leaks")


def test_arrays_are_compared_by_their_ids_and_names(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    features, labels = arrays
    ids = [f"t{row}" for row in range(4)]

    report = ds.leaks((features, labels), (2 * features[:4], ["cat", "cat", "owl", "cat"], ids))

    rows = report.pairs.filter(pc.greater(report.pairs["similarity"], 0.9999)).to_pylist()
    assert [row["test_id"] for row in rows if row["conflict"]] == ["t1"]
    assert {(row["test_id"], row["train_id"]) for row in rows} == {
        (f"t{row}", str(row)) for row in range(4)
    }
    assert rows[0]["test_id"] == "t1"


def test_the_marks_drop_the_copies_from_the_scores(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    features, labels = arrays
    report = ds.leaks((features, labels), (features[:4], labels[:4]))

    scores = ds.score(features, labels, scorers="rmd", shrinkage=0.5, marks=report.train_marks)

    assert len(scores) == 96
    assert not {"0", "1", "2", "3"} & set(scores["sample_id"].to_pylist())


def test_stores_on_disk_and_arrays_do_not_say_what_made_both(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    features, labels = arrays
    store = store_of(
        tmp_path / "train",
        torch.from_numpy(features).float(),
        torch.zeros(100).long(),
        backbone="builtin",
    )

    with pytest.warns(UserWarning, match="the backbone of test 1 is unknown"):
        report = ds.leaks(str(store.folder), (features.astype(np.float32)[:2], labels[:2]))

    assert report.tests[0].exact == 2


@pytest.mark.parametrize("cosine", [0, 1.5, "much"])
def test_a_cosine_out_of_bounds_is_an_error(
    arrays: tuple[np.ndarray, np.ndarray], cosine: object
) -> None:
    with pytest.raises(ds.errors.ConfigError, match="near_duplicates"):
        ds.leaks(arrays, arrays, near_duplicates=cosine)


def test_a_search_by_lists_warns_of_what_it_may_miss(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    features, labels = arrays

    with pytest.warns(UserWarning, match="looked for in inverted lists"):
        report = ds.leaks(arrays, (features[:4], labels[:4]), search="lists")

    assert report.tests[0].exact == 4
    assert report.tests[0].lists is not None
    with pytest.raises(ds.errors.ConfigError, match="'auto', 'exact' or 'lists'"):
        ds.leaks(arrays, arrays, search="some")


def test_without_a_test_set_there_is_nothing_to_compare(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    with pytest.raises(ds.errors.ConfigError, match="no test set"):
        ds.leaks(arrays)


@pytest.mark.parametrize(
    ("name", "images"), [("train_images", "photos/"), ("test_images", ["photos/"])]
)
def test_images_without_a_page_are_refused(
    arrays: tuple[np.ndarray, np.ndarray], name: str, images: object
) -> None:
    with pytest.raises(ds.errors.ConfigError, match=f"{name} changes nothing without a page"):
        ds.leaks(arrays, arrays, **{name: images})  # type: ignore[arg-type]
