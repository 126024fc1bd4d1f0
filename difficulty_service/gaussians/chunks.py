"""Labelled features in chunks: read again in each pass, by the threads that process them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.products import Workspace, block_rows, chunk_ranges, summed_rows

Chunk = TypeVar("Chunk")


class ChunkSource(Protocol[Chunk]):
    """Labelled features that are read in chunks, once in each pass over them."""

    @property
    def device(self) -> torch.device:
        """Device of the features."""

    def chunks(self) -> Iterable[Chunk]:
        """Where each chunk is, in the order of the samples; called once for each pass."""

    def read(self, chunk: Chunk, work: Workspace) -> tuple[Tensor, Iterable[Tensor]]:
        """Labels (samples,) of a chunk, some thousand, and its features by blocks (rows, dim).

        The labels are on the CPU, where reading them waits for no device.
        """


def with_labels(labels: Tensor, blocks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each block of a chunk, shape (rows, dim), and its labels, shape (rows,)."""
    for features in blocks:
        yield features, labels[: len(features)]
        labels = labels[len(features) :]


@dataclass(frozen=True)
class TensorChunks:
    """Features in memory, (samples, dim), as a source of chunks.

    Attributes:
        labels: Class indices, on the CPU. Shape (samples,).
    """

    features: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        require_a_label_each(len(self.features), self.labels)

    @property
    def device(self) -> torch.device:
        """Device of the features."""
        return self.features.device

    def chunks(self) -> Iterator[slice]:
        """Rows of each chunk."""
        num_rows = len(self.features)
        return chunk_ranges(num_rows, summed_rows(num_rows))

    def read(self, chunk: slice, work: Workspace) -> tuple[Tensor, Iterable[Tensor]]:  # noqa: ARG002
        """The labels and the rows of a chunk, without a copy."""
        return self.labels[chunk], self.features[chunk].split(block_rows(self.device))


@dataclass(frozen=True)
class TransformedChunks(Generic[Chunk]):
    """Labelled features after a transformation of each block, in the chunks of another source.

    Attributes:
        transform: Function of a block of features and the memory of the calling thread, in which
            the result may be: the next block overwrites it.
    """

    source: ChunkSource[Chunk]
    transform: Callable[[Tensor, Workspace], Tensor]

    @property
    def device(self) -> torch.device:
        """Device of the features."""
        return self.source.device

    def chunks(self) -> Iterable[Chunk]:
        """Where each chunk is, in the order of the samples."""
        return self.source.chunks()

    def read(self, chunk: Chunk, work: Workspace) -> tuple[Tensor, Iterator[Tensor]]:
        """Reads a chunk and transforms its features block by block."""
        labels, blocks = self.source.read(chunk, work)
        return labels, (self.transform(block, work) for block in blocks)


def require_a_label_each(num_rows: int, labels: Tensor) -> None:
    """Raises StatisticsError unless there is one label per row."""
    if labels.shape != (num_rows,):
        raise StatisticsError(f"{num_rows} feature rows but labels of shape {tuple(labels.shape)}")
