"""What a shard, or the finished part of one, becomes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from difficulty_service.extraction.batches import Batch, Image
from difficulty_service.feature_store.bad_image import BadImage
from difficulty_service.feature_store.part import Part


@dataclass(frozen=True)
class ExtractedShard:
    """What a shard becomes.

    Attributes:
        part: Features of the new images.
        bad_images: Images that could not be read.
        reused: Images whose features are known from an earlier run.
    """

    part: Part
    bad_images: list[BadImage]
    reused: list[Image]


def join_batches(batches: Sequence[Batch], feature_dim: int, augment_runs: int) -> ExtractedShard:
    """The batches of a shard, or the first of them, as one."""
    images = [image for batch in batches for image in batch.new]
    features = [batch.values for batch in batches if batch.values is not None]
    part = make_part(
        images, torch.cat(features) if features else torch.empty(0, feature_dim), augment_runs
    )
    return ExtractedShard(
        part,
        [bad for batch in batches for bad in batch.bad],
        [image for batch in batches for image in batch.reused],
    )


def make_part(images: Sequence[Image], features: torch.Tensor, augment_runs: int) -> Part:
    """A part.

    Args:
        images: The images of the part, in order.
        features: The runs of an image together. Shape (images * runs, dim).
        augment_runs: Number of augmented runs over each image; 0 for one plain run.
    """
    numbers = range(1, augment_runs + 1) if augment_runs else [0]
    labels = torch.tensor([image.label for image in images], dtype=torch.int64)
    return Part(
        sample_ids=[image.sample_id for image in images for _ in numbers],
        labels=labels.repeat_interleave(len(numbers)),
        runs=torch.tensor(list(numbers), dtype=torch.int64).repeat(len(images)),
        features=features,
        contents=[image.content for image in images for _ in numbers],
        stamps=[image.stamp for image in images for _ in numbers],
    )
