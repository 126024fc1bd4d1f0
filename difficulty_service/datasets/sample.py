"""What every dataset gives: samples with a stable id, an encoded image and a label, in shards."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.boundary import Boundary

ImageOpener = Callable[[], BinaryIO]
"""Opens one encoded image for reading from its start; seekable; raises ImageError."""


@dataclass(frozen=True)
class Sample:
    """One labelled image, not yet read.

    Attributes:
        sample_id: Stable across machines and runs, unique in its dataset.
        label: Class index.
        open: Opens the encoded image.
    """

    sample_id: str
    label: int
    open: ImageOpener


@dataclass(frozen=True)
class DatasetOptions:
    """How to read a dataset; a field that a kind of dataset has no use for is an error there.

    Attributes:
        split: Sub-folder or named split, where the dataset has several.
        image_column: Column of a table that holds image bytes or paths; None finds it.
        label_column: Column of a table that holds the labels; None finds it.
        id_column: Column whose text is the sample id; None uses `file#row`.
        limit: Use this many samples, evenly spaced over the dataset.
        shard_size: Samples per shard, the unit of work and of resuming.
        boundary: What reading it may not leave; None lets links, paths and URIs lead anywhere.
    """

    split: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    limit: int | None = None
    shard_size: int = 4096
    boundary: Boundary | None = None


@dataclass(frozen=True)
class Dataset:
    """Samples in a fixed order, cut into shards of equal size; opened by `open_dataset`.

    Attributes:
        location: The path or URI, as given.
        class_names: Name of each class index.
        sample_ids: One id per sample, in order.
        labels: Class indices, int32. Shape (samples,).
        fingerprint: Hex SHA-256 that changes with the ids, labels or sizes of the samples.
        shard_size: Samples per shard; the last shard may hold fewer.
        open_images: Given the ascending positions of some samples, yields their openers in order.
    """

    location: str
    class_names: tuple[str, ...]
    sample_ids: Sequence[str]
    labels: NDArray[np.int32]
    fingerprint: str
    shard_size: int
    open_images: Callable[[range], Iterator[ImageOpener]]

    @property
    def num_shards(self) -> int:
        """Number of shards; the last may be smaller."""
        return -(-len(self.labels) // self.shard_size)

    def shard_positions(self, shard: int) -> range:
        """Positions of a shard's samples in the dataset's order."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, len(self.labels)))

    def read_shard(self, shard: int) -> Iterator[Sample]:
        """The samples of one shard, in order; an image is read when its `open` is called."""
        positions = self.shard_positions(shard)
        for position, opener in zip(positions, self.open_images(positions), strict=True):
            yield Sample(self.sample_ids[position], int(self.labels[position]), opener)
