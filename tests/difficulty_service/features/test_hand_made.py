"""Feature stores that another program wrote, and what they lack."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from pyarrow import feather

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import (
    FeatureStore,
    create_store,
    holds_only_shards,
    open_store,
)
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scoring.fit_store import fit_store

DESCRIPTION = {"class_names": ["cat", "dog"], "num_shards": 1, "augment_runs": 0}


def make_store(folder: Path) -> FeatureStore:
    labels = torch.arange(6) % 2
    features = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    store = create_store(folder, FeatureDescription.of(DESCRIPTION))
    store.write_shard(0, ShardTable(list("abcdef"), labels, torch.zeros(6), features), [])
    return store


def test_a_description_names_the_keys_it_lacks(tmp_path: Path) -> None:
    described = {"format_version": 2, "class_names": ["cat"], "num_shards": 1}
    (tmp_path / "store.json").write_text(json.dumps(described))

    with pytest.raises(FeatureStoreError, match=r"lacks the keys \['augment_runs'\]"):
        open_store(tmp_path)


def test_what_can_be_read_may_lack_keys_that_scores_need(tmp_path: Path) -> None:
    make_store(tmp_path)

    store = open_store(tmp_path)

    assert len(store.read_shard(0).labels) == 6
    with pytest.raises(FeatureStoreError, match=r"lacks the keys \['dataset', 'fingerprint', "):
        fit_store(store, FitOptions())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: table.drop_columns(["label"]), r"lacks the columns \['label'\]"),
        (lambda table: table.drop_columns(["sample_id"]), r"lacks the columns \['sample_id'\]"),
        (
            lambda table: table.set_column(
                3, "features", table["features"].cast(pa.list_(pa.float64()))
            ),
            "features of type list<.*double>, but expected is a fixed-size list of float",
        ),
        (
            lambda table: table.set_column(1, "label", pa.array([0, 1, None, 1, 0, 1])),
            r"has nulls in the columns \['label'\]",
        ),
    ],
)
def test_a_shard_without_its_columns_is_named(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], problem: str
) -> None:
    store = make_store(tmp_path)
    shard = store.shard_file(0)
    feather.write_feather(change(feather.read_table(shard)), shard)

    with pytest.raises(FeatureStoreError, match=rf"part-00000\.arrow is not a shard.* {problem}"):
        store.read_shard(0)


def test_shards_without_a_description_are_recognised(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    images = tmp_path / "images"
    images.mkdir()
    feather.write_feather(pa.table({"image": [b""]}), images / "part-00000.arrow")

    described = holds_only_shards(store.folder)
    (store.folder / "store.json").unlink()

    assert not described
    assert holds_only_shards(store.folder)
    assert not holds_only_shards(images)
