"""Features of all augmentation runs of each sample, read once and kept in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from difficulty_service.base.errors import DatasetError, FeatureStoreError
from difficulty_service.features.array_files import open_features
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.source import FeatureSource
from trainer.own_code import find_own, is_object

_SHOWN = 3


@dataclass(frozen=True)
class CachedFeatures:
    """Labelled features, or those of a shard.

    Attributes:
        labels: Class indices, int64. Shape (samples,).
        features: float32 on the CPU. Shape (samples, runs, dim).
    """

    sample_ids: Sequence[str]
    labels: Tensor
    features: Tensor

    def select(self, sample_ids: Sequence[str]) -> Tensor:
        """The features of some samples, in their order. Shape (chosen samples, runs, dim)."""
        position_of = {sample_id: row for row, sample_id in enumerate(self.sample_ids)}
        return self.features[[position_of[sample_id] for sample_id in sample_ids]]


def open_source(location: str) -> FeatureSource:
    """Opens a feature store, a file of arrays or an object of the caller."""
    source: FeatureSource = (
        find_own(location) if is_object(location) else open_features(Path(location))
    )
    return source


def read_shards(source: FeatureSource, location: str) -> Iterator[CachedFeatures]:
    """Reads features shard by shard."""
    for shard in range(source.num_shards):
        opened = source.open_shard(shard, ("sample_id",))
        rows = opened.sample_ids.to_pylist()
        if not rows:
            continue
        ids = rows[:: source.runs]
        if any(rows[run :: source.runs] != ids for run in range(source.runs)):
            raise FeatureStoreError(
                f"part {shard} of {location} does not hold {source.runs} rows in turn for each "
                "sample, one for each augmentation run",
                "run `difficulty extract` again",
            )
        features = opened.features().float()
        features = features.view(len(ids), source.runs, features.shape[1])
        _require_finite(features, ids, location)
        yield CachedFeatures(ids, opened.labels[:: source.runs], features)


def read_cached_features(location: str) -> tuple[CachedFeatures, FeatureDescription]:
    """Reads all features, and the description of what made them."""
    source = open_source(location)
    shards = list(read_shards(source, location))
    if not shards:
        raise DatasetError(f"{location!r} holds no features: none of its images could be read")
    cached = CachedFeatures(
        [sample_id for shard in shards for sample_id in shard.sample_ids],
        torch.cat([shard.labels for shard in shards]),
        torch.cat([shard.features for shard in shards]),
    )
    return cached, source.description


def _require_finite(features: Tensor, ids: Sequence[str], location: str) -> None:
    bad = (~features.isfinite().all(dim=2).all(dim=1)).nonzero()[:, 0].tolist()
    if bad:
        raise FeatureStoreError(
            f"features of {len(bad)} samples of {location} are NaN or infinite, first "
            f"{[ids[row] for row in bad[:_SHOWN]]}",
            "extract them again, or leave those samples out",
        )
