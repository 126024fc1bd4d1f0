"""The matrix products that dominate the time of fitting and scoring.

On the CPU they use the BLAS of NumPy and SciPy with one thread per product. Batches of rows run in
parallel instead, on one thread per core: a product that is split inside BLAS stalls whenever
another process takes a core, and its result depends on the number of threads. Other devices use
their own library.
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

from difficulty_service.base.device_copies import send
from difficulty_service.base.float32_products import full_float32
from difficulty_service.base.processors import computes_in_bfloat16
from difficulty_service.base.threads import num_workers
from difficulty_service.gaussians import blas

BLOCK_ROWS = 1 << 10
"""Rows that one core processes at a time; they fit into its cache."""

BATCH_ROWS = 1 << 12
"""Minimum number of rows per task of a thread, so that the overhead of a task is small."""

MOST_BATCH_ROWS = 1 << 14
"""Maximum number of rows whose products are summed in float32 before float64 takes over."""

ENOUGH_BATCHES = 32
"""Number of batches that keeps all threads busy until the end; larger batches need more rows."""

THREADS_OF_GPU = 2
"""Number of threads that give work to a GPU: one goes on while the other one waits. Each of them
holds its own matrices there."""

MIRRORED_ROWS = 1 << 8
"""Rows of a symmetric matrix whose lower triangle is filled at a time."""

MOST_PANELS, PANEL_STEP = 8, 64
"""Maximum number of panels of a triangular map, and the block size of BLAS in rows."""


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries in this process, cached because finding them takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def one_thread_per_product() -> Iterator[None]:
    """Limits BLAS and torch to one thread per call, because batches run in parallel.

    Products of float32 are computed as such, whatever the process allows torch to round.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with full_float32(), _blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


def block_rows(device: torch.device) -> int:
    """Rows that are processed at a time; an accelerator takes many more than a core."""
    return BLOCK_ROWS if device.type == "cpu" else MOST_BATCH_ROWS


def threads_of(device: torch.device) -> int:
    """Threads that take batches of rows: one for each core, or the few that keep a GPU busy."""
    return num_workers() if device.type == "cpu" else THREADS_OF_GPU


def summed_rows(num_rows: int) -> int:
    """Rows per batch when sums are accumulated; adding up costs the same for a small batch."""
    return min(max(BATCH_ROWS, num_rows // ENOUGH_BATCHES), MOST_BATCH_ROWS)


def row_ranges(num_rows: int, at_once: int) -> Iterator[slice]:
    """Slices of this many rows at once; the last may be shorter."""
    for start in range(0, num_rows, at_once):
        yield slice(start, min(start + at_once, num_rows))


class Workspace(threading.local):
    """Matrices that each thread reuses, because fresh memory costs ten times as much as writing."""

    def __init__(self) -> None:  # called once in each thread
        self._matrices: dict[str, Tensor] = {}

    def matrix(self, name: str, rows: int, columns: int, like: Tensor) -> Tensor:
        """An uninitialised matrix, shape (rows, columns), with the dtype and device of `like`."""
        matrix = self._matrices.get(name)
        if (
            matrix is None
            or len(matrix) < rows
            or matrix.shape[1] != columns
            or matrix.device != like.device
        ):
            matrix = torch.empty(rows, columns, dtype=like.dtype, device=like.device)
            self._matrices[name] = matrix
        return matrix[:rows]

    def like(self, name: str, matrix: Tensor) -> Tensor:
        """An uninitialised matrix with the shape, dtype and device of another."""
        return self.matrix(name, len(matrix), matrix.shape[1], matrix)

    def centred(self, features: Tensor, point: Tensor) -> Tensor:
        """Subtracts a point (dim,) from features (samples, dim), in place where they are in here.

        The result has the dtype of the point, which is on the features' device.
        """
        own = {matrix.data_ptr() for matrix in self._matrices.values()}
        if features.data_ptr() in own and features.dtype == point.dtype:
            return features.sub_(point)
        out = self.matrix("centred", len(features), len(point), point)
        return torch.sub(features, point, out=out)


def add_upper_gram(rows: Tensor, total: Tensor) -> None:
    """Adds rowsᵀ rows, (samples, dim), to a square (dim, dim); undefined below its diagonal."""
    if rows.device.type == "cpu":
        blas.add_upper_gram(rows.numpy(), total.numpy())
    else:
        total.addmm_(rows.T, rows)


def mirror_upper(matrix: Tensor) -> Tensor:
    """Copies the values above the diagonal of a square matrix below it, in place."""
    for rows in row_ranges(len(matrix), MIRRORED_ROWS):
        block = matrix[rows, rows]
        block.copy_(block.triu() + block.triu(1).T)
        matrix[rows.stop :, rows] = matrix[rows, rows.stop :].T
    return matrix


def matmul(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """The product left @ right, written to `out` if given, by the fastest library available."""
    if left.device.type != "cpu":
        return torch.matmul(left, right, out=out)
    target = None if out is None else out.numpy()
    return torch.from_numpy(np.matmul(left.numpy(), right.numpy(), out=target))


def rounded_matmul(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """The product left @ right, all three rounded to bfloat16, written to float32 `out`.

    Takes less than half as long where the processor multiplies in bfloat16; elsewhere the products
    are exact all the same, and their sums differ by no more than the rounding of float32.
    """
    left, right = left.bfloat16(), right.bfloat16()
    if left.device.type != "cpu" or computes_in_bfloat16():
        return out.copy_(torch.mm(left, right))
    return out.copy_(matmul(left.float(), right.float(), out=out).bfloat16())


def argmin(rows: Tensor) -> Tensor:
    """Column of the smallest value of each row. Shape (samples,), int64."""
    if rows.device.type != "cpu":
        return rows.argmin(dim=1)
    return torch.from_numpy(rows.numpy().argmin(axis=1))  # ten times as fast as torch


def argmax(rows: Tensor) -> Tensor:
    """Column of the largest value of each row. Shape (samples,), int64."""
    if rows.device.type != "cpu":
        return rows.argmax(dim=1)
    return torch.from_numpy(rows.numpy().argmax(axis=1))


def exp(values: Tensor, out: Tensor) -> Tensor:
    """The exponentials of a matrix, written to another one, which may be the same."""
    if values.device.type != "cpu":
        return torch.exp(values, out=out)
    np.exp(values.numpy(), out=out.numpy())  # torch is up to twenty times as slow below 1e-38
    return out


def logsumexp(rows: Tensor, largest: Tensor | None = None) -> Tensor:
    """Logarithm of the sum of exponentials of each row; overwrites the rows. Shape (samples,).

    The largest value of each row, (samples,), need not be searched for where it is known.
    """
    if largest is None:
        largest = rows.amax(dim=1)
    return exp(rows.sub_(largest[:, None]), out=rows).sum(dim=1).log_().add_(largest)


def squared_lengths(rows: Tensor) -> Tensor:
    """Sum of squares of each row, in the dtype of the rows. Shape (samples,)."""
    if rows.device.type != "cpu":
        return rows.square().sum(dim=1)
    array = rows.numpy()
    return torch.from_numpy(np.vecdot(array, array))  # one pass over memory, not two


@dataclass(frozen=True)
class Projection:
    """A linear map stored without most of its zeros; made by `projection`.

    A triangular map costs little more than half as much as a full one.

    Attributes:
        triangle: Transposed map if it was found triangular on the CPU, otherwise None. Shape (dim,
            dim).
        upper: Whether the triangle is an upper one.
        panels: Panels of any other map: slice of rows, slice of columns that are not all zero, and
            transposed block of each.
    """

    rank: int
    triangle: Tensor | None = None
    upper: bool = False
    panels: tuple[tuple[slice, slice, Tensor], ...] = ()

    def apply(self, rows: Tensor, out: Tensor) -> Tensor:
        """Maps (samples, dim) to (samples, rank) in the dtype of the map and writes to `out`."""
        if self.triangle is not None and rows.device.type != "cpu":
            out.copy_(rows @ self.triangle)
        elif self.triangle is not None:
            blas.multiply_by_triangle(
                out.copy_(rows).numpy(), self.triangle.numpy(), upper=self.upper
            )
        for outputs, columns, block in self.panels:
            if rows.device.type == "cpu":
                target = out.numpy()[:, outputs]
                np.matmul(rows.numpy()[:, columns], block.numpy(), out=target)
            else:
                out[:, outputs] = rows[:, columns] @ block
        return out


def projection(matrix: Tensor, dtype: torch.dtype, device: torch.device) -> Projection:
    """Prepares a map of shape (rank, dim) for rows of a dtype on a device."""
    rank, dim = matrix.shape
    for half in (torch.tril, torch.triu) if device.type == "cpu" and rank == dim else ():
        if torch.equal(half(matrix), matrix):
            triangle = matrix.T.to(dtype).contiguous()
            return Projection(rank, triangle, upper=half is torch.tril)
    return Projection(rank, panels=_panels(matrix.to(dtype), device))


def project(matrix: Tensor, rows: Tensor) -> Tensor:
    """The product rows @ matrixᵀ, on the CPU for half the cost if the matrix is triangular."""
    linear = projection(matrix, rows.dtype, rows.device)
    return linear.apply(rows, rows.new_empty(len(rows), linear.rank))


def _panels(matrix: Tensor, device: torch.device) -> tuple[tuple[slice, slice, Tensor], ...]:
    """Splits a map of shape (rank, dim) into the panels of a `Projection` on a device."""
    panels, there = [], send(matrix, device)
    height = max(1, -(-len(matrix) // (MOST_PANELS * PANEL_STEP))) * PANEL_STEP
    for start in range(0, len(matrix), height):
        block = matrix[start : start + height]
        used = block.ne(0).any(dim=0).nonzero().flatten()
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        rows, columns = slice(start, start + len(block)), slice(first, last)
        panels.append((rows, columns, there[rows, columns].T.contiguous()))
    return tuple(panels)
