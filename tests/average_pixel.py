"""A backbone whose features are told by looking at an image, and datasets in memory for it."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.datasets.sample import Dataset, ImageOpener
from tests.factories import png_of

SIZE = 8


class AveragePixel:
    """A backbone whose features are the mean of each channel, before normalisation."""

    name = "average"
    feature_dim = 3
    weights_sha256 = "none"
    one_core = False

    def __init__(self, size: int = SIZE) -> None:
        self.preprocessing = Preprocessing(size, size, "bilinear", (0.0,) * 3, (1.0,) * 3)
        self.batch_sizes: list[int] = []

    def encode(self, images: Tensor) -> Tensor:
        self.batch_sizes.append(len(images))
        return images.mean(dim=(2, 3)) * 255


def png(level: int) -> bytes:
    """An image whose average is its level."""
    return png_of((level, level, 0), (SIZE, SIZE))


def make_dataset(
    openers: Sequence[ImageOpener], shard_size: int = 100, fingerprint: str = "image"
) -> Dataset:
    """Images of two classes in turn, whose ids begin with the fingerprint."""
    return Dataset(
        location="memory",
        class_names=("a", "b"),
        sample_ids=[f"{fingerprint} {index}" for index in range(len(openers))],
        labels=np.arange(len(openers), dtype=np.int32) % 2,
        fingerprint=fingerprint,
        shard_size=shard_size,
        open_images=lambda positions: iter([openers[position] for position in positions]),
    )
