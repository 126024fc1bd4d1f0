"""A limit keeps all classes in proportion; counts below one are refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.class_folders import open_image_folder
from difficulty_service.datasets.listing import (
    EACH,
    choose_positions,
    choose_samples,
    draw_positions,
    usual_draw,
)
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.table import open_table
from tests.factories import write_image_folder


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


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.integers(10, 70), st.integers(0, 3))
def test_a_draw_has_some_of_each_class_that_has_two_samples(
    labels: list[int], size: int, seed: int
) -> None:
    array = np.array(labels, dtype=np.int32)
    sizes = np.bincount(array, minlength=9)

    chosen = draw_positions(array, size, seed)

    assert len(chosen) <= min(size, len(labels))
    assert (np.diff(chosen) > 0).all()
    drawn = np.bincount(array[chosen], minlength=9)
    if size < len(labels):
        assert (drawn[sizes < 2] == 0).all()
        assert (drawn[drawn > 0] >= np.minimum(sizes, EACH)[drawn > 0]).all()
        assert len(chosen) == min(size, sizes[drawn > 0].sum())
        if size >= np.minimum(sizes, EACH)[sizes > 1].sum():
            assert (drawn[sizes > 1] > 0).all()


def test_a_draw_keeps_the_share_of_each_class_and_follows_from_its_seed() -> None:
    labels = np.repeat(np.arange(3, dtype=np.int32), [600, 300, 100])

    first, again, other = (draw_positions(labels, 300, seed) for seed in (0, 0, 1))

    in_proportion = EACH + (300 - 3 * EACH) * np.array([0.6, 0.3, 0.1])
    assert np.abs(np.bincount(labels[first]) - in_proportion).max() <= 1
    assert first.tolist() == again.tolist() != other.tolist()


def test_where_some_of_each_class_are_too_many_random_classes_stand_for_all() -> None:
    labels = np.repeat(np.arange(100, dtype=np.int32), 10)

    chosen = draw_positions(labels, 50, 0)

    assert sorted(np.unique(labels[chosen], return_counts=True)[1]) == [5] * 10


@pytest.mark.parametrize(("classes", "size"), [(10, 2_000), (1_000, 5_000), (9_000, 10_000)])
def test_more_samples_are_drawn_where_there_are_many_classes(classes: int, size: int) -> None:
    assert usual_draw(np.arange(classes, dtype=np.int32).repeat(2)) == size


def test_samples_that_are_chosen_keep_their_images_and_are_another_dataset(tmp_path: Path) -> None:
    write_image_folder(tmp_path, each=4)
    whole = open_image_folder(str(tmp_path), DatasetOptions(shard_size=2))
    positions = np.array([1, 5, 6, 11])

    chosen = choose_samples(whole, positions)

    assert chosen.fingerprint != whole.fingerprint
    assert chosen.num_shards == 2
    expected = [sample for shard in range(6) for sample in whole.read_shard(shard)]
    found = [sample for shard in range(2) for sample in chosen.read_shard(shard)]
    for position, sample in zip(positions, found, strict=True):
        assert sample.sample_id == expected[position].sample_id
        assert sample.label == expected[position].label
        with sample.open() as here, expected[position].open() as there:
            assert here.read() == there.read()
