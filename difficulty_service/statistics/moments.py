"""Counts, sums and scatter of labelled features: all that a Gaussian needs, and they add up.

Everything is kept relative to one fixed point near the mean, the pilot, so that the difference of
large numbers never arises; states that share a pilot are merged by plain addition.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from difficulty_service.errors import StatisticsError
from difficulty_service.parallel import map_in_order, num_workers
from difficulty_service.statistics.products import (
    Workspace,
    add_upper_gram,
    block_rows,
    chunk_ranges,
    one_thread_per_product,
    summed_rows,
)

PRODUCTS_OVERFLOW = -1

PILOT_ROWS = 2048
"""Rows whose mean is the pilot; it need not be exact, only near."""


@dataclass(frozen=True)
class Moments:
    """Sums over samples, all float64 and on the CPU; memory does not grow with their number.

    Attributes:
        pilot: The point that features are measured from. Shape (dim,).
        counts: Samples of each class, int64. Shape (classes,).
        class_sums: Sums of features minus pilot. Shape (classes, dim).
        scatter: Sum of outer products of features minus pilot, over all. Shape (dim, dim).
    """

    pilot: Tensor
    counts: Tensor
    class_sums: Tensor
    scatter: Tensor

    @property
    def num_samples(self) -> int:
        """Number of samples seen."""
        return int(self.counts.sum())

    @property
    def num_classes(self) -> int:
        """Number of class indices, with or without samples."""
        return len(self.counts)

    @property
    def dim(self) -> int:
        """Length of a feature vector."""
        return len(self.pilot)


def pilot_of(features: Tensor) -> Tensor:
    """A point near the mean of the features, exact in float32. Shape (dim,), float64."""
    mean = features[:PILOT_ROWS].mean(dim=0, dtype=torch.float64)
    return mean.float().double().cpu()


def empty_moments(pilot: Tensor, num_classes: int) -> Moments:
    """The moments of no sample."""
    dim = len(pilot)
    return Moments(
        pilot=pilot,
        counts=torch.zeros(num_classes, dtype=torch.int64),
        class_sums=torch.zeros(num_classes, dim, dtype=torch.float64),
        scatter=torch.zeros(dim, dim, dtype=torch.float64),
    )


def compute_moments(
    features: Tensor,
    labels: Tensor,
    pilot: Tensor,
    num_classes: int,
    *,
    matmul_dtype: torch.dtype = torch.float32,
) -> Moments:
    """Moments of some samples, in one pass.

    Args:
        features: Any floating dtype, on any device. Shape (samples, dim).
        labels: Class indices below `num_classes`. Shape (samples,).
        pilot: The point to measure from; the same for all parts of a dataset. Shape (dim,).
        num_classes: Number of class indices.
        matmul_dtype: dtype of the matrix products within a chunk of rows; sums over chunks are
            float64.

    Raises:
        StatisticsError: Shapes disagree, a label is out of range, or a feature is not finite.
    """
    chunks = chunks_of(features, labels)
    return accumulate_moments(chunks, pilot, num_classes, matmul_dtype=matmul_dtype)


ReadChunk = Callable[[Workspace], tuple[Tensor, Iterable[Tensor]]]
"""Gives the labels of some thousand samples, shape (samples,), and their features, block by block,
each of shape (rows, dim), which may use the memory offered."""


def with_labels(labels: Tensor, blocks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each block of a chunk, shape (rows, dim), and its labels, shape (rows,)."""
    for features in blocks:
        yield features, labels[: len(features)]
        labels = labels[len(features) :]


def chunks_of(features: Tensor, labels: Tensor) -> list[ReadChunk]:
    """Features in memory and their labels, in chunks."""
    _require_a_label_each(len(features), labels)

    def chunk(rows: slice) -> ReadChunk:
        return lambda _work: (labels[rows], features[rows].split(block_rows(features.device)))

    return [chunk(rows) for rows in chunk_ranges(len(features), summed_rows(len(features)))]


def accumulate_moments(
    chunks: Iterable[ReadChunk],
    pilot: Tensor,
    num_classes: int,
    *,
    matmul_dtype: torch.dtype = torch.float32,
) -> Moments:
    """Moments of a dataset that comes in chunks, of which a few at a time are in memory.

    Args:
        chunks: Each is called once, on one of as many threads as there are cores.
        pilot: As for `compute_moments`.
        num_classes: As for `compute_moments`.
        matmul_dtype: As for `compute_moments`.

    Raises:
        StatisticsError: As for `compute_moments`.
    """
    moments = empty_moments(pilot, num_classes)
    offset = pilot.to(matmul_dtype)
    work = Workspace()

    def sum_chunk(read: ReadChunk) -> _ChunkSums:
        labels, blocks = read(work)
        _check_labels(labels, num_classes)
        present, place = torch.unique(labels, return_inverse=True)
        sums = offset.new_zeros(len(present), len(pilot), device=labels.device)
        scatter = offset.new_zeros(len(pilot), len(pilot), device=labels.device)
        first = 0
        for features in blocks:
            _check_dim(features, len(pilot))
            centred = work.centred(features, offset.to(features.device))
            sums.index_add_(0, place[first : first + len(features)], centred)
            add_upper_gram(centred, scatter)
            if not torch.isfinite(scatter.diagonal()).all():
                bad = (~torch.isfinite(centred).all(dim=1)).nonzero().flatten().tolist()
                first_bad = first + bad[0] if bad else PRODUCTS_OVERFLOW
                return _ChunkSums(present, torch.bincount(place), sums, scatter, first_bad)
            first += len(features)
        _require_a_label_each(first, labels)
        return _ChunkSums(present, torch.bincount(place), sums, scatter)

    with one_thread_per_product():
        for chunk in map_in_order(sum_chunk, chunks, num_workers()):
            present = chunk.present.cpu()
            moments.counts.index_add_(0, present, chunk.counts.cpu())
            moments.class_sums.index_add_(0, present, chunk.sums.cpu().double())
            moments.scatter.add_(chunk.scatter.cpu())
            if chunk.first_bad is not None:
                first_row = moments.num_samples - int(chunk.counts.sum())
                raise StatisticsError(_describe_not_finite(chunk.first_bad, first_row))
    upper = moments.scatter.triu()
    return replace(moments, scatter=upper + upper.triu(1).T)


@dataclass(frozen=True)
class _ChunkSums:
    """What a chunk of rows adds to the moments.

    Attributes:
        present: Classes that occur. Shape (present,).
        counts: Rows of each of them. Shape (present,).
        sums: Of features minus pilot, for each of them. Shape (present, dim).
        scatter: Sum of outer products of features minus pilot; its upper triangle counts.
            Shape (dim, dim).
        first_bad: First row that is not finite, PRODUCTS_OVERFLOW where only products are not.
    """

    present: Tensor
    counts: Tensor
    sums: Tensor
    scatter: Tensor
    first_bad: int | None = None


def merge(parts: Sequence[Moments]) -> Moments:
    """Adds moments up, in the given order; all are brought to the first one's pilot.

    Raises:
        StatisticsError: No parts, or feature lengths or class counts that differ.
    """
    if not parts:
        raise StatisticsError("no moments to merge: the dataset has no samples")
    first = parts[0]
    total = empty_moments(first.pilot, first.num_classes)
    for part in parts:
        if (part.dim, part.num_classes) != (first.dim, first.num_classes):
            raise StatisticsError(
                f"cannot merge moments of {part.dim} dimensions and {part.num_classes} classes "
                f"with {first.dim} dimensions and {first.num_classes} classes"
            )
        part = _with_pilot(part, first.pilot)
        total.counts.add_(part.counts)
        total.class_sums.add_(part.class_sums)
        total.scatter.add_(part.scatter)
    return total


def _with_pilot(moments: Moments, pilot: Tensor) -> Moments:
    """The same samples measured from another point."""
    if torch.equal(moments.pilot, pilot):
        return moments
    shift = moments.pilot - pilot
    total = moments.class_sums.sum(dim=0)
    cross = torch.outer(total, shift)
    return Moments(
        pilot=pilot,
        counts=moments.counts,
        class_sums=moments.class_sums + moments.counts[:, None] * shift,
        scatter=moments.scatter + cross + cross.T + moments.num_samples * torch.outer(shift, shift),
    )


def _check_dim(features: Tensor, dim: int) -> None:
    if features.ndim != 2 or features.shape[1] != dim:  # noqa: PLR2004
        raise StatisticsError(
            f"features have shape {tuple(features.shape)}, expected (samples, {dim})"
        )


def _check_labels(labels: Tensor, num_classes: int) -> None:
    if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
        raise StatisticsError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, "
            f"expected 0 to {num_classes - 1}"
        )


def _require_a_label_each(num_rows: int, labels: Tensor) -> None:
    if labels.shape != (num_rows,):
        raise StatisticsError(f"{num_rows} feature rows but labels of shape {tuple(labels.shape)}")


def _describe_not_finite(first_bad: int, first_row: int) -> str:
    if first_bad == PRODUCTS_OVERFLOW:
        return "the products of these features overflow float32; fit with products in float64"
    return (
        f"feature vectors hold NaN or infinity, the first of them in row {first_row + first_bad}; "
        "extract them again with --precision fp32"
    )
