"""Features with other labels than those that are stored with them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from difficulty_service.feature_description import FeatureDescription
from difficulty_service.feature_store.part import OpenPart
from difficulty_service.feature_store.source import FeatureSource


@dataclass(frozen=True)
class RelabelledFeatures:
    """A feature source that is another one with its labels replaced.

    Attributes:
        source: The other source.
        labels: Class indices of all rows of each part.
    """

    source: FeatureSource
    labels: Sequence[Tensor]

    @property
    def description(self) -> FeatureDescription:
        """As for the other source, with its fingerprint."""
        return self.source.description

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class index."""
        return self.source.class_names

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return self.source.num_parts

    @property
    def runs(self) -> int:
        """Number of rows per sample."""
        return self.source.runs

    @property
    def part_rows(self) -> int:
        """Maximum number of rows of a part."""
        return self.source.part_rows

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the samples."""
        return self.source.warnings

    def pieces(self, num_rows: int) -> Iterator[tuple[int, slice]]:
        """All rows, about `num_rows` at a time, as parts and slices of them."""
        return self.source.pieces(num_rows)

    def open_part(
        self,
        shard: int,
        columns: Sequence[str] = ("sample_id", "run"),
        rows: slice | None = None,
    ) -> OpenPart:
        """A part, or some rows of it, with the other labels."""
        part = self.source.open_part(shard, columns, rows)
        return replace(part, labels=self.labels[shard][rows or slice(None)])
