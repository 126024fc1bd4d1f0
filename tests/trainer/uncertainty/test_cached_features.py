"""Features of all runs in memory: the shape, the order, and stores that are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from difficulty_service.base.errors import DatasetError, FeatureStoreError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import create_store
from tests.factories import store_of
from trainer.uncertainty.cached_features import read_cached_features

WriteRuns = Callable[..., str]


def test_the_features_of_all_runs_of_a_sample_are_together(write_runs: WriteRuns) -> None:
    features = torch.randn(10, 2, 6)

    cached, description = read_cached_features(write_runs(features=features))

    assert torch.equal(cached.features, features)
    assert list(cached.sample_ids) == [f"{row}.png" for row in range(10)]
    assert cached.labels.tolist() == [row % 3 for row in range(10)]
    assert description.backbone == "builtin"


def test_samples_are_selected_by_their_ids_in_any_order(write_runs: WriteRuns) -> None:
    features = torch.randn(10, 2, 6)
    cached, _ = read_cached_features(write_runs(features=features))

    assert torch.equal(cached.select(["7.png", "0.png"]), features[[7, 0]])


def test_a_store_without_augmentation_has_one_run(features: str) -> None:
    cached, _ = read_cached_features(features)

    assert cached.features.shape == (90, 1, 6)


def test_rows_that_are_not_in_turn_are_refused(tmp_path: Path) -> None:
    store = create_store(
        tmp_path, FeatureDescription.of({"class_names": ("a",), "num_shards": 1, "augment_runs": 2})
    )
    zeros = torch.zeros(4, dtype=torch.int64)
    store.write_shard(0, ShardTable(["1", "2", "1", "2"], zeros, zeros, torch.zeros(4, 3)), [])

    with pytest.raises(FeatureStoreError, match=r"part 0 of .* does not hold 2 rows in turn"):
        read_cached_features(str(tmp_path))


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_features_that_are_not_finite_are_named(write_runs: WriteRuns, value: float) -> None:
    features = torch.randn(10, 2, 6)
    features[2, 1, 3] = value

    with pytest.raises(FeatureStoreError, match=r"1 samples of .*runs are NaN .*\['2.png'\]"):
        read_cached_features(write_runs(features=features))


def test_a_store_without_any_feature_is_refused(tmp_path: Path) -> None:
    store_of(tmp_path, torch.empty(0, 3), torch.empty(0, dtype=torch.int64))

    with pytest.raises(DatasetError, match="holds no features"):
        read_cached_features(str(tmp_path))
