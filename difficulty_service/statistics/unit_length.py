"""Features scaled to unit length around the mean of a dataset.

With few samples, unit vectors tell classes apart better than features as they are;
`docs/findings.md` has the figures.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from difficulty_service.errors import StatisticsError
from difficulty_service.statistics.chunks import Chunk, ChunkSource
from difficulty_service.statistics.factor import ALL_THE_SAME
from difficulty_service.statistics.moments import Moments
from difficulty_service.statistics.products import Workspace

SMALLEST_LENGTH = 1e-6
"""Distance from the centre, as a share of the centre's own length, that is only rounding noise."""

SMALLEST_SPREAD = 1e-6
"""Total variance of unit vectors below which all features are the same."""


def scale_to_unit_length(features: Tensor, centre: Tensor) -> Tensor:
    """Features minus a centre, divided by their distance from it.

    Args:
        features: Shape (samples, dim).
        centre: Shape (dim,).

    Returns:
        Unit vectors, float64; zero where features differ from the centre by rounding only.
        Shape (samples, dim).
    """
    offsets = features.double() - centre
    lengths = offsets.norm(dim=1, keepdim=True)
    distinct = lengths > SMALLEST_LENGTH * centre.norm()
    return offsets.mul_(torch.where(distinct, 1 / lengths, 0.0))


@dataclass(frozen=True)
class UnitLengthChunks(Generic[Chunk]):
    """Labelled features scaled to unit length, in the chunks of another source.

    Attributes:
        source: Labelled features as they are.
        centre: Point around which to scale them. Shape (dim,).
    """

    source: ChunkSource[Chunk]
    centre: Tensor

    def chunks(self) -> Iterable[Chunk]:
        """Where each chunk is, in the order of the samples."""
        return self.source.chunks()

    def read(self, chunk: Chunk, work: Workspace) -> tuple[Tensor, Iterator[Tensor]]:
        """Reads a chunk and scales its features block by block."""
        labels, blocks = self.source.read(chunk, work)
        return labels, (
            scale_to_unit_length(block, self.centre.to(block.device)) for block in blocks
        )


def require_spread(moments: Moments) -> None:
    """Raises StatisticsError where unit vectors with these moments are all the same."""
    total = float(moments.scatter.trace()) / moments.num_samples if moments.num_samples else 1.0
    if total < SMALLEST_SPREAD:
        raise StatisticsError(ALL_THE_SAME)
