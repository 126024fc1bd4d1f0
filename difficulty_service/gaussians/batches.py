"""Labelled features in batches: read again in each pass, by the threads that process them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.products import Workspace, block_rows, row_ranges, summed_rows

Batch = TypeVar("Batch")


class BatchSource(Protocol[Batch]):
    """Labelled features that are read in batches, once in each pass over them."""

    @property
    def device(self) -> torch.device:
        """Device of the features."""

    def batches(self) -> Iterable[Batch]:
        """Where each batch is, in the order of the samples; called once for each pass."""

    def read(self, batch: Batch, work: Workspace) -> tuple[Tensor, Iterable[Tensor]]:
        """Labels (samples,) of a batch, some thousand, and its features by blocks (rows, dim).

        The labels are on the CPU, where reading them waits for no device.
        """


def with_labels(labels: Tensor, blocks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each block of a batch, shape (rows, dim), and its labels, shape (rows,)."""
    for features in blocks:
        yield features, labels[: len(features)]
        labels = labels[len(features) :]


@dataclass(frozen=True)
class TensorBatches:
    """Features in memory, (samples, dim), as a source of batches.

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

    def batches(self) -> Iterator[slice]:
        """Rows of each batch."""
        num_rows = len(self.features)
        return row_ranges(num_rows, summed_rows(num_rows))

    def read(self, batch: slice, work: Workspace) -> tuple[Tensor, Iterable[Tensor]]:  # noqa: ARG002
        """The labels and the rows of a batch, without a copy."""
        return self.labels[batch], self.features[batch].split(block_rows(self.device))


@dataclass(frozen=True)
class TransformedBatches(Generic[Batch]):
    """Labelled features after a transformation of each block, in the batches of another source.

    Attributes:
        transform: Function of a block of features and the memory of the calling thread, in which
            the result may be: the next block overwrites it.
    """

    source: BatchSource[Batch]
    transform: Callable[[Tensor, Workspace], Tensor]

    @property
    def device(self) -> torch.device:
        """Device of the features."""
        return self.source.device

    def batches(self) -> Iterable[Batch]:
        """Where each batch is, in the order of the samples."""
        return self.source.batches()

    def read(self, batch: Batch, work: Workspace) -> tuple[Tensor, Iterator[Tensor]]:
        """Reads a batch and transforms its features block by block."""
        labels, blocks = self.source.read(batch, work)
        return labels, (self.transform(block, work) for block in blocks)


def require_a_label_each(num_rows: int, labels: Tensor) -> None:
    """Raises StatisticsError unless there is one label per row."""
    if labels.shape != (num_rows,):
        raise StatisticsError(f"{num_rows} feature rows but labels of shape {tuple(labels.shape)}")
