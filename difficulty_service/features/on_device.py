"""Features that are sent to a device as they are read, so that they are fitted and scored there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import OpenShard, ReadRows
from difficulty_service.features.source import FeatureSource


class FeaturesOnDevice:
    """A feature source whose features are read on a device.

    Args:
        source: The features, on the CPU.

    Attributes:
        device: The device; may be changed between two passes over the features.
    """

    def __init__(self, source: FeatureSource, device: torch.device) -> None:
        self._source = source
        self.device = device
        self.description: FeatureDescription = source.description
        self.warnings: tuple[str, ...] = source.warnings
        self.class_names: tuple[str, ...] = source.class_names
        self.runs, self.num_shards, self.shard_rows = (
            source.runs,
            source.num_shards,
            source.shard_rows,
        )
        self.slices: Callable[[int], Iterator[tuple[int, slice]]] = source.slices
        self.contents: Callable[[int], pa.FixedSizeBinaryArray | None] = source.contents
        self.appearance: Callable[[int], pa.StructArray | None] = source.appearance

    def open_shard(
        self, shard: int, columns: Sequence[str] = ("sample_id", "run"), rows: slice | None = None
    ) -> OpenShard:
        """A shard, or some rows of it, whose features are read on the device."""
        opened = self._source.open_shard(shard, columns, rows)
        return replace(opened, read_features=self._there(opened.read_features))

    def _there(self, read: ReadRows) -> ReadRows:
        def read_there(rows: slice) -> Tensor:
            return send(read(rows), self.device)

        return read_there
