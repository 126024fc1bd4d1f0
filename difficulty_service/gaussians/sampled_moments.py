"""Moments of large datasets whose scatter within classes is that of some of the rows.

The class means of all rows cost one pass over them, but a covariance of D dimensions D times as
much. From so many rows on it hardly gains by more; see `docs/suspicion.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from difficulty_service.base.device_copies import fetch_all, send
from difficulty_service.base.threads import map_in_order
from difficulty_service.gaussians.batches import Batch, BatchSource
from difficulty_service.gaussians.moments import (
    Moments,
    add_rows,
    classes_to_sum,
    empty_moments,
    require_finite,
)
from difficulty_service.gaussians.products import (
    Workspace,
    add_upper_gram,
    block_rows,
    matmul,
    mirror_upper,
    one_thread_per_product,
    threads_of,
)
from difficulty_service.gaussians.row_sample import choose_samples


@dataclass(frozen=True)
class WeightedRows:
    """Rows of a dataset that stand for all of them.

    Attributes:
        numbers: Ascending. Shape (rows,).
        weights: Number of rows that each of them stands for, float32. Shape (rows,).
    """

    numbers: Tensor
    weights: Tensor


def choose_weighted_rows(num_rows: int, certain: Tensor, most: int, seed: int) -> WeightedRows:
    """Some rows that are certain, by their numbers, and at most so many others that a seed draws.

    Those that are certain stand for themselves alone, the others for all others.
    """
    weights = torch.zeros(num_rows)
    weights[certain] = 1
    others = (weights == 0).nonzero().flatten()
    drawn = others[choose_samples(len(others), most, seed)]
    weights[drawn] = len(others) / max(len(drawn), 1)
    numbers = weights.nonzero().flatten()
    return WeightedRows(numbers, weights[numbers])


@dataclass(frozen=True)
class _Sums:
    """Sums over the rows of a batch, by the classes present in it, in the dtype of products.

    Attributes:
        weighed: Sums of the chosen rows times their weights. Shape (present, dim).
        weights: Sums of these weights. Shape (present,).
        scatter: Of the chosen rows with their weights, above the diagonal. Shape (dim, dim).
    """

    present: Tensor
    counts: Tensor
    sums: Tensor
    weighed: Tensor
    weights: Tensor
    scatter: Tensor


@one_thread_per_product()
def accumulate_sampled_moments(
    source: BatchSource[Batch],
    counts: Sequence[int],
    chosen: WeightedRows,
    pilot: Tensor,
    num_classes: int,
    matmul_dtype: torch.dtype = torch.float32,
) -> Moments:
    """Moments with the class means of all rows and the covariance within classes of those chosen.

    `counts` are the rows of each batch; the others as for `accumulate_moments`.

    Raises:
        StatisticsError: A feature is not finite.
    """
    device = source.device
    offset, work = send(pilot.to(matmul_dtype), device), Workspace()
    weights_there = send(chosen.weights.to(matmul_dtype), device)

    def sum_batch(item: tuple[Batch, int]) -> _Sums:
        batch, first_row = item
        labels, blocks = source.read(batch, work)
        present, places = classes_to_sum(labels, num_classes, device)
        places_there = send(places, device)
        sums, weighed = offset.new_zeros(2, len(present), len(pilot))
        weights_of = offset.new_zeros(len(present))
        scatter = offset.new_zeros(len(pilot), len(pilot))
        held: list[Tensor] = []

        def add_held(of_chosen: slice) -> None:
            own = send(places[chosen.numbers[of_chosen] - first_row], device)
            rows, weights = torch.cat(held), weights_there[of_chosen]
            held.clear()
            add_rows(weights_of, own, weights)
            roots = weights.sqrt()[:, None]
            add_upper_gram(rows.mul_(roots), scatter)
            add_rows(weighed, own, rows.mul_(roots))

        first, added, last = first_row, *_places(chosen, first_row, first_row).tolist()
        for block in blocks:
            centred = work.centred(block, offset)
            add_rows(sums, places_there[first - first_row :][: len(block)], centred)
            begin, end = _places(chosen, first, first + len(block)).tolist()
            # Gathered, because a product of few rows takes nearly as long as one of many.
            held.append(centred[send(chosen.numbers[begin:end] - first, device)])
            first, last = first + len(block), end
            if last - added >= block_rows(device):
                add_held(slice(added, last))
                added = last
        if last > added:
            add_held(slice(added, last))
        if not sums.isfinite().all():
            _raise_not_finite(source, batch, first_row)
        counts_of = torch.bincount(places, minlength=len(present))
        return _Sums(present, counts_of, sums, weighed, weights_of, scatter)

    total = empty_moments(pilot, num_classes, device)
    weighed = torch.zeros_like(total.class_sums)
    weights = total.class_sums.new_zeros(num_classes)
    numbered = zip(source.batches(), accumulate(counts[:-1], initial=0), strict=True)
    for part in map_in_order(sum_batch, numbered, threads_of(device)):
        total.counts.index_add_(0, part.present, part.counts)
        present = send(part.present, device)
        add_rows(total.class_sums, present, part.sums.double())
        add_rows(weighed, present, part.weighed.double())
        add_rows(weights, present, part.weights.double())
        total.scatter.add_(part.scatter)
    sums_there = [total.class_sums, total.scatter, weighed, weights]
    class_sums, scatter, weighed, weights = fetch_all(sums_there)
    total = replace(total, class_sums=class_sums, scatter=scatter)
    return _with_class_means(total, weighed, weights)


def _with_class_means(total: Moments, weighed: Tensor, weights: Tensor) -> Moments:
    """The moments with a scatter of some rows within classes, and of all rows between them.

    `weighed` and `weights` are as for `_Sums`, of all classes. Overwrites the scatter.
    """
    means = total.class_sums / total.counts.clamp(min=1)[:, None]
    # The scatter within classes, around the means of all rows, and then that of the means.
    scatter = mirror_upper(total.scatter)
    cross = matmul(means.T, weighed)
    scatter.sub_(cross).sub_(cross.T)
    scatter.add_(matmul(means.T, means * (weights + total.counts)[:, None]))
    return replace(total, scatter=scatter)


def _places(chosen: WeightedRows, first: int, stop: int) -> Tensor:
    """Where the chosen rows of a range begin and end. Shape (2,)."""
    return torch.searchsorted(chosen.numbers, torch.tensor([first, stop]))


def _raise_not_finite(source: BatchSource[Batch], batch: Batch, first_row: int) -> None:
    for block in source.read(batch, Workspace())[1]:
        require_finite(block.cpu(), torch.arange(first_row, first_row + len(block)))
        first_row += len(block)
