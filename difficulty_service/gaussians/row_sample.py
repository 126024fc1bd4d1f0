"""Samples of a dataset, chosen at random by a seed and read in one pass."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.gaussians.batches import Batch, BatchSource
from difficulty_service.gaussians.moments import require_finite
from difficulty_service.gaussians.products import Workspace
from difficulty_service.gaussians.ridge import LabelledRows

FIELDS = ("features", "labels")


def count_rows(source: BatchSource[Batch]) -> list[int]:
    """Number of rows of each batch of a dataset, for which no features are read."""
    work = Workspace()
    return [len(source.read(batch, work)[0]) for batch in source.batches()]


def choose_samples(num_samples: int, most: int, seed: int) -> Tensor:
    """Numbers of some samples, ascending; all where there are no more than `most`."""
    if num_samples <= most:
        return torch.arange(num_samples)
    generator = np.random.default_rng(seed)
    chosen = generator.choice(num_samples, most, replace=False, shuffle=False)
    return torch.from_numpy(np.sort(chosen))


def read_samples(
    source: BatchSource[Batch], counts: Sequence[int], chosen: Tensor, runs: int
) -> LabelledRows:
    """Reads the rows of samples by their numbers, ascending; `count_rows` gave the counts."""
    parts, first_row = [], 0
    for batch, count in zip(source.batches(), counts, strict=True):
        part = read_batch_samples(source, batch, first_row, chosen, runs)
        if len(part.labels):
            parts.append(part)
        first_row += count
    features, labels = (torch.cat([getattr(part, name) for part in parts]) for name in FIELDS)
    return LabelledRows(features, labels, runs)


def read_batch_samples(
    source: BatchSource[Batch], batch: Batch, first_row: int, chosen: Tensor, runs: int
) -> LabelledRows:
    """Those of some samples that are in a batch, which has all their rows, from `first_row` on."""
    labels, blocks = source.read(batch, Workspace())
    kept = rows_of(chosen, runs, first_row, len(labels))
    features, seen = [], 0
    for block in blocks:
        here = kept[(kept >= seen) & (kept < seen + len(block))]
        if len(here):
            # A copy, because the next block is read into the same memory.
            rows = block[send(here - seen, block.device)].cpu()
            require_finite(rows, here + first_row)
            features.append(rows)
        seen += len(block)
    rows = torch.cat(features) if features else torch.empty(0, 0)
    return LabelledRows(rows, labels.long()[kept[::runs]], runs)


def rows_of(chosen: Tensor, runs: int, first_row: int, num_rows: int) -> Tensor:
    """Which of some consecutive rows are of the samples chosen, counted from the first of them.

    That one has the number `first_row` in the dataset; a sample may begin before it.
    """
    ends = torch.tensor([first_row // runs, -(-(first_row + num_rows) // runs)])
    first, last = torch.searchsorted(chosen, ends).tolist()
    rows = (chosen[first:last, None] * runs + torch.arange(runs)).flatten() - first_row
    return rows[(rows >= 0) & (rows < num_rows)]
