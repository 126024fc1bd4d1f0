"""The matrix products that take nearly all the time of fitting and scoring.

On the CPU they go to the BLAS of NumPy and SciPy, one thread a product and one product a chunk of
rows, on as many threads as there are cores: products that are split inside BLAS stall whenever
another process takes a core, and the result would depend on the number of threads. Elsewhere they
go to the device's own library.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from difficulty_service.statistics import blas

BLOCK_ROWS = 1 << 10
"""Rows that a core works on at a time: few enough for its cache."""

CHUNK_ROWS = 1 << 12
"""Rows a thread takes at a time, at least: to hand them over costs little beside the work."""

MOST_CHUNK_ROWS = 1 << 14
"""Products of so many rows may be summed in float32 before float64 takes over."""

ENOUGH_CHUNKS = 32
"""So many chunks keep all threads busy until the end; only with more of them may they be larger."""

MOST_PANELS, PANEL_STEP = 8, 64
"""A triangular map is cut into so many panels, each a multiple of what BLAS works on at a time."""


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries in this process; finding them takes milliseconds, so once."""
    return ThreadpoolController()


@contextmanager
def one_thread_per_product() -> Iterator[None]:
    """Within, BLAS and torch use one thread a call, because chunks run side by side."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


def block_rows(device: torch.device) -> int:
    """Rows that are worked on at a time; a device with many more units takes many more."""
    return BLOCK_ROWS if device.type == "cpu" else MOST_CHUNK_ROWS


def summed_rows(num_rows: int) -> int:
    """Rows per chunk where the sums of each are added up: that takes as long for a small chunk."""
    return min(max(CHUNK_ROWS, num_rows // ENOUGH_CHUNKS), MOST_CHUNK_ROWS)


def chunk_ranges(num_rows: int, chunk_rows: int) -> Iterator[slice]:
    """Slices of `chunk_rows` rows; the last may be shorter."""
    for start in range(0, num_rows, chunk_rows):
        yield slice(start, min(start + chunk_rows, num_rows))


class Workspace(threading.local):
    """Matrices that each thread fills anew: fresh memory costs ten times more than writing it."""

    def __init__(self) -> None:  # called once in each thread
        self._matrices: dict[str, Tensor] = {}

    def matrix(self, name: str, rows: int, columns: int, like: Tensor) -> Tensor:
        """Uninitialised, of the dtype of `like` and on its device.

        Returns:
            Shape (rows, columns).
        """
        held = self._matrices.get(name)
        if held is None or len(held) < rows or held.shape[1] != columns:
            held = torch.empty(rows, columns, dtype=like.dtype, device=like.device)
            self._matrices[name] = held
        return held[:rows]

    def rows(self, num_rows: int, dim: int) -> Tensor:
        """Where features are read to. Shape (num_rows, dim), float32."""
        return self.matrix("features", num_rows, dim, torch.empty(0))

    def centred(self, features: Tensor, point: Tensor) -> Tensor:
        """Features minus a point; in place where they were read to `rows`: nobody else has them.

        Args:
            features: Shape (samples, dim).
            point: On the features' device. Shape (dim,).

        Returns:
            In the dtype of the point. Shape (samples, dim).
        """
        read = self._matrices.get("features")
        own = read is not None and read.data_ptr() == features.data_ptr()
        if own and features.dtype == point.dtype:
            return features.sub_(point)
        out = self.matrix("centred", len(features), len(point), point)
        return torch.sub(features, point, out=out)


def add_upper_gram(rows: Tensor, total: Tensor) -> None:
    """Adds rowsᵀ rows, shape (samples, dim), to a matrix of shape (dim, dim), in place.

    What is below the diagonal is not to be read.
    """
    if rows.device.type == "cpu":
        blas.add_upper_gram(rows.numpy(), total.numpy())
    else:
        total.addmm_(rows.T, rows)


def matmul(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """The product left @ right, in `out` where given, on the fastest library for the device."""
    if left.device.type != "cpu":
        return torch.matmul(left, right, out=out)
    target = None if out is None else out.numpy()
    return torch.from_numpy(np.matmul(left.numpy(), right.numpy(), out=target))


def argmin(rows: Tensor) -> Tensor:
    """Column of the smallest value of each row. Shape (samples,), int64."""
    if rows.device.type != "cpu":
        return rows.argmin(dim=1)
    return torch.from_numpy(rows.numpy().argmin(axis=1))  # ten times as fast as torch's


def squared_lengths(rows: Tensor) -> Tensor:
    """Sum of squares of each row, in the dtype of the rows. Shape (samples,)."""
    if rows.device.type != "cpu":
        return rows.square().sum(dim=1)
    array = rows.numpy()
    return torch.from_numpy(np.vecdot(array, array))  # one pass over memory, not two


@dataclass(frozen=True)
class Projection:
    """A linear map, kept without most of what is zero in it.

    A triangular map so costs little more than half of a full one. Made by `projection`.

    Attributes:
        rank: Rows of the map.
        triangle: The transposed map where BLAS takes it as a triangle; else None. Shape (dim, dim).
        upper: Whether that triangle is an upper one.
        panels: Otherwise panels of rows without the columns that are zero in all of them; for each
            its rows, its columns and the block itself, transposed.
    """

    rank: int
    triangle: Tensor | None = None
    upper: bool = False
    panels: tuple[tuple[slice, slice, Tensor], ...] = ()

    def apply(self, rows: Tensor, out: Tensor) -> Tensor:
        """Shape (samples, dim) to (samples, rank), in the dtype of the map, written to `out`."""
        if self.triangle is not None:
            blas.multiply_by_triangle(
                out.copy_(rows).numpy(), self.triangle.numpy(), upper=self.upper
            )
        for place, columns, block in self.panels:
            if rows.device.type == "cpu":
                target = out.numpy()[:, place]
                np.matmul(rows.numpy()[:, columns], block.numpy(), out=target)
            else:
                out[:, place] = rows[:, columns] @ block
        return out


def projection(matrix: Tensor, dtype: torch.dtype, device: torch.device) -> Projection:
    """Prepares a map (rank, dim) for rows of a dtype on a device."""
    rank, dim = matrix.shape
    for half in (torch.tril, torch.triu) if device.type == "cpu" and rank == dim else ():
        if torch.equal(half(matrix), matrix):
            triangle = matrix.T.to(dtype).contiguous()
            return Projection(rank, triangle, upper=half is torch.tril)
    return Projection(rank, panels=_panels(matrix.to(device, dtype)))


def _panels(matrix: Tensor) -> tuple[tuple[slice, slice, Tensor], ...]:
    """The panels of a map, see `Projection`; shape (rank, dim)."""
    panels = []
    height = max(1, -(-len(matrix) // (MOST_PANELS * PANEL_STEP))) * PANEL_STEP
    for start in range(0, len(matrix), height):
        block = matrix[start : start + height]
        used = block.ne(0).any(dim=0).nonzero().flatten()
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        transposed = block[:, first:last].T.contiguous()
        panels.append((slice(start, start + len(block)), slice(first, last), transposed))
    return tuple(panels)
