"""The interface by which features are fitted and scored, whether on disk or in memory."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
import torch

from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import OpenShard


class FeatureSource(Protocol):
    """Labelled features in shards, which are read again in each pass over them."""

    @property
    def description(self) -> FeatureDescription:
        """How the features were made."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class index."""

    @property
    def num_shards(self) -> int:
        """Number of shards."""

    @property
    def runs(self) -> int:
        """Number of rows per sample."""

    @property
    def shard_rows(self) -> int:
        """Maximum number of rows of a shard."""

    @property
    def device(self) -> torch.device:
        """Device on which the features are read."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the samples for the reader of the scores, one sentence each."""

    def contents(self, shard: int) -> pa.FixedSizeBinaryArray | None:
        """Digest of what each sample of a shard was read from; None where that is not known."""

    def appearance(self, shard: int) -> pa.StructArray | None:
        """Numbers that tell how the image of each sample of a shard looks, by their names.

        None where they are known of none, as of texts and arrays, and in features that were
        extracted before there were any.
        """

    def slices(self, num_rows: int) -> Iterator[tuple[int, slice]]:
        """All rows, about `num_rows` at a time, as shards and slices of them.

        A slice may reach beyond the end of its shard. The rows of a sample stay together.
        """

    def open_shard(
        self, shard: int, columns: Sequence[str] = ("sample_id", "run"), rows: slice | None = None
    ) -> OpenShard:
        """A shard, or some rows of it, whose features are not read yet.

        Args:
            columns: Columns to read besides the label: some of `sample_id` and `run`.
            rows: Rows to open, as far as they exist; None for all.
        """
