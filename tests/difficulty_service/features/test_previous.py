"""Shards that are set aside, read again and deleted once they are not needed."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.previous import (
    PreviousFeatures,
    delete_reused,
    open_previous,
    prepare_store,
)
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import FeatureStore, open_store

DESCRIPTION = {
    "fingerprint": "before",
    "class_names": ["cat", "dog"],
    "num_samples": 5,
    "num_shards": 2,
    "shard_size": 3,
    "augment_runs": 0,
    "backbone": "builtin",
}
CHANGED = DESCRIPTION | {"fingerprint": "after", "num_shards": 1, "shard_size": 8}


def digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def shard_table(numbers: list[int], runs: int = 1) -> ShardTable:
    """Each image has its number as a feature; even ones are files."""
    repeated = [number for number in numbers for _ in range(runs)]
    return ShardTable(
        sample_ids=[f"photo {number}" for number in repeated],
        labels=torch.zeros(len(repeated), dtype=torch.int64),
        runs=torch.arange(runs).repeat(len(numbers)),
        features=torch.tensor(repeated, dtype=torch.float32)[:, None].repeat(1, 2),
        contents=[digest(number) for number in repeated],
        stamps=[number + 100 if number % 2 == 0 else None for number in repeated],
    )


def make_store(folder: Path, runs: int = 1, **described: Any) -> FeatureStore:  # noqa: ANN401
    store = prepare_store(folder, FeatureDescription.of(DESCRIPTION | described))
    store.write_shard(0, shard_table([0, 1, 2], runs), [])
    bad = [BadImage("photo 8", "truncated", digest(8), 108), BadImage("photo 9", "no such file")]
    store.write_shard(1, shard_table([3, 4], runs), bad)
    return store


def opened(store: FeatureStore) -> PreviousFeatures:
    previous = open_previous(store)
    assert previous is not None
    return previous


def test_the_same_dataset_keeps_its_shards(tmp_path: Path) -> None:
    make_store(tmp_path)

    store = prepare_store(tmp_path, FeatureDescription.of(DESCRIPTION))

    assert store.missing_shards() == []
    assert open_previous(store) is None


def test_a_changed_dataset_has_no_shards_and_knows_its_images(tmp_path: Path) -> None:
    make_store(tmp_path)

    store = prepare_store(tmp_path, FeatureDescription.of(CHANGED))
    known = opened(store).known

    assert store.missing_shards() == [0]
    assert [known.find_content(digest(number), "") for number in (0, 4, 5)] == [0, 4, None]
    assert [known.find_stamp(stamp, "") for stamp in (102, 104, 101)] == [2, 4, None]
    assert known.find_content(digest(8), "") == known.find_stamp(108, "") == 5
    assert known.reason(5) == "truncated"


@pytest.mark.parametrize("runs", [1, 3])
def test_features_are_read_in_the_order_asked_for(tmp_path: Path, runs: int) -> None:
    make_store(tmp_path, runs, augment_runs=runs if runs > 1 else 0)
    described = CHANGED | {"augment_runs": runs if runs > 1 else 0}
    previous = opened(prepare_store(tmp_path, FeatureDescription.of(described)))

    features = previous.read_features(np.array([4, 0, 1, 0, 3]))

    assert features[:, 1].tolist() == [number for number in (4, 0, 1, 0, 3) for _ in range(runs)]


def test_what_a_stopped_run_has_extracted_is_known(tmp_path: Path) -> None:
    store = prepare_store(tmp_path, FeatureDescription.of(DESCRIPTION))
    store.write_unfinished(1, shard_table([3]), [])

    previous = opened(prepare_store(tmp_path, FeatureDescription.of(DESCRIPTION)))

    assert previous.known.find_content(digest(3), "") == 0
    assert not store.unfinished_file(1).exists()


def test_a_complete_shard_replaces_the_unfinished_one(tmp_path: Path) -> None:
    store = prepare_store(tmp_path, FeatureDescription.of(DESCRIPTION))
    store.write_unfinished(1, shard_table([3]), [])

    store.write_shard(1, shard_table([3, 4]), [])

    assert not store.unfinished_file(1).exists()


def test_only_features_that_are_in_no_shard_are_kept(tmp_path: Path) -> None:
    make_store(tmp_path)
    store = prepare_store(tmp_path, FeatureDescription.of(CHANGED))
    store.write_shard(0, shard_table([0, 1, 2, 4]), [])

    left_over = delete_reused(store)

    previous = opened(store)
    assert left_over == 1
    assert len(previous.files) == 1
    assert previous.known.find_content(digest(3), "") == 0
    assert previous.read_features(np.array([0])).tolist() == [[3.0, 3.0]]


def test_nothing_is_left_where_all_features_are_in_shards(tmp_path: Path) -> None:
    make_store(tmp_path)
    store = prepare_store(tmp_path, FeatureDescription.of(CHANGED))
    store.write_shard(0, shard_table([4, 3, 2, 1, 0]), [])

    left_over = delete_reused(store)

    assert left_over == 0
    assert not (tmp_path / "previous").exists()


def test_several_changes_keep_the_features_of_all_datasets(tmp_path: Path) -> None:
    make_store(tmp_path)
    second = prepare_store(tmp_path, FeatureDescription.of(CHANGED))
    second.write_shard(0, shard_table([5, 6]), [])

    known = opened(
        prepare_store(tmp_path, FeatureDescription.of(CHANGED | {"fingerprint": "third"}))
    ).known

    assert None not in [known.find_content(digest(number), "") for number in range(7)]


def test_a_crash_between_moving_the_shards_and_describing_the_new_store_leaves_it_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path)

    def crash(_store: FeatureStore) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FeatureStore, "write_description", crash)
        with pytest.raises(KeyboardInterrupt):
            prepare_store(tmp_path, FeatureDescription.of(CHANGED))

    with pytest.raises(FeatureStoreError, match="lacks 2 of 2 shards"):
        open_store(tmp_path)
    for description in (DESCRIPTION, CHANGED):  # either goes on
        known = opened(prepare_store(tmp_path, FeatureDescription.of(description))).known
        assert known.find_content(digest(4), "") == 4


def test_features_of_another_network_are_refused_even_if_the_dataset_has_changed_too(
    tmp_path: Path,
) -> None:
    make_store(tmp_path)

    with pytest.raises(FeatureStoreError, match=r"backbone: .*resume=False"):
        prepare_store(tmp_path, FeatureDescription.of(CHANGED | {"backbone": "clip"}))

    assert open_store(tmp_path).missing_shards() == []


def test_a_shard_that_does_not_say_which_images_it_holds_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    table = shard_table([3, 4])
    store.write_shard(1, ShardTable(table.sample_ids, table.labels, table.runs, table.features), [])

    with pytest.raises(FeatureStoreError, match=r"00001\.arrow is damaged .*content.*delete it"):
        open_previous(prepare_store(tmp_path, FeatureDescription.of(CHANGED)))
