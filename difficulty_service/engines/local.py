"""Runs shards one after another in this process."""

from collections.abc import Iterable

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import Dataset
from difficulty_service.feature_store import FeatureStore
from difficulty_service.features import ExtractOptions, Progress, extract_shard, ignore


def extract_shards(
    dataset: Dataset,
    shards: Iterable[int],
    backbone: Backbone,
    options: ExtractOptions,
    store: FeatureStore,
    progress: Progress = ignore,
) -> None:
    """Extracts shards and writes each to the store as soon as it is complete."""
    for shard in shards:
        part, bad_images = extract_shard(dataset, shard, backbone, options, progress)
        store.write_part(shard, part, bad_images)
