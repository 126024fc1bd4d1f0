"""A limit keeps all classes in proportion; counts below one are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.listing import choose_positions
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.table import open_table


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.integers(1, 70))
def test_a_limit_keeps_that_many_samples_and_every_class_where_it_can(
    labels: list[int], limit: int
) -> None:
    array = np.array(labels, dtype=np.int32)

    chosen = choose_positions(array, limit)

    assert len(chosen) == min(limit, len(labels))
    assert (np.diff(chosen) > 0).all()
    assert chosen[0] >= 0
    assert chosen[-1] < len(labels)
    if limit >= len(set(labels)):
        assert set(array[chosen].tolist()) == set(labels)


def test_a_limit_keeps_the_share_of_each_class() -> None:
    labels = np.repeat(np.arange(3, dtype=np.int32), [600, 300, 100])

    chosen = choose_positions(labels, 100)

    assert np.abs(np.bincount(labels[chosen]) - [60, 30, 10]).max() <= 1


def test_periodic_labels_lose_no_class() -> None:
    labels = np.tile(np.arange(10, dtype=np.int32), 100)

    chosen = choose_positions(labels, 100)

    assert np.bincount(labels[chosen]).tolist() == [10] * 10


def test_without_a_limit_every_sample_is_used_in_order() -> None:
    assert choose_positions(np.zeros(4, dtype=np.int32), None).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (DatasetOptions(limit=0), "limit is 0"),
        (DatasetOptions(shard_size=0), "shard_size is 0"),
        (DatasetOptions(limit=-3), "limit is -3"),
    ],
)
def test_counts_below_one_are_refused(options: DatasetOptions, text: str) -> None:
    with pytest.raises(DatasetError, match=f"{text}; expected 1 or more") as caught:
        open_table("t.csv", options)

    assert caught.value.parameter == text.split()[0]
