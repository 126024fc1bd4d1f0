"""What a shard, or the finished rows of one, becomes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.sample import Dataset
from difficulty_service.extraction.batches import Batch, Image
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.shard import ShardTable
from difficulty_service.images.appearance import to_struct


@dataclass(frozen=True)
class ExtractedShard:
    """What a shard becomes: its new features, bad images, and those with features before."""

    table: ShardTable
    bad_images: list[BadImage]
    reused: list[Image]


def join_batches(
    batches: Sequence[Batch], feature_dim: int, run_numbers: Sequence[int]
) -> ExtractedShard:
    """The batches of a shard, or the first of them, as one."""
    images = [image for batch in batches for image in batch.new]
    features = [batch.values for batch in batches if batch.values is not None]
    table = shard_table(
        images, torch.cat(features) if features else torch.empty(0, feature_dim), run_numbers
    )
    appearance = [batch.appearance for batch in batches if batch.appearance is not None]
    if appearance:
        of_rows = np.concatenate(appearance).repeat(len(run_numbers), axis=0)
        table = replace(table, appearance=to_struct(of_rows))
    return ExtractedShard(
        table,
        [bad for batch in batches for bad in batch.bad],
        [image for batch in batches for image in batch.reused],
    )


def shard_table(
    images: Sequence[Image], features: torch.Tensor, run_numbers: Sequence[int]
) -> ShardTable:
    """Features with the runs of an image together. Shape (images * runs, dim)."""
    labels = torch.tensor([image.label for image in images], dtype=torch.int64)
    return ShardTable(
        sample_ids=[image.sample_id for image in images for _ in run_numbers],
        labels=labels.repeat_interleave(len(run_numbers)),
        runs=torch.tensor(list(run_numbers), dtype=torch.int64).repeat(len(images)),
        features=features,
        contents=[image.content for image in images for _ in run_numbers],
        stamps=[image.stamp for image in images for _ in run_numbers],
    )


def warn_of_unreadable_classes(dataset: Dataset, bad_images: Sequence[BadImage]) -> list[str]:
    """A sentence that names the classes of which no image could be read, if there are any."""
    if not bad_images:
        return []
    if len(bad_images) == len(dataset.labels):
        first = f"the first is {bad_images[0].sample_id}: {bad_images[0].reason}"
        raise DatasetError(f"none of the {len(bad_images)} images can be read; {first}")
    bad_ids = {bad.sample_id for bad in bad_images}
    readable = [sample_id not in bad_ids for sample_id in dataset.sample_ids]
    unreadable = sorted(set(dataset.labels.tolist()) - set(dataset.labels[readable].tolist()))
    if not unreadable:
        return []
    names = [dataset.class_names[label] for label in unreadable]
    return [f"no image of these classes can be read: {list_names(names)}"]
