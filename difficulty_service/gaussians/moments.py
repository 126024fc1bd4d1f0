"""Moments of labelled features: counts, sums and scatter, which can be merged by addition.

All sums are relative to a fixed point near the mean, the pilot, which avoids the cancellation of
large numbers. Moments with the same pilot are merged by plain addition.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.base.device_copies import fetch_all, send
from difficulty_service.base.errors import Setting, StatisticsError
from difficulty_service.base.threads import map_in_order
from difficulty_service.gaussians.batches import (
    Batch,
    BatchSource,
    TensorBatches,
    require_a_label_each,
)
from difficulty_service.gaussians.products import (
    Workspace,
    add_upper_gram,
    mirror_upper,
    one_thread_per_product,
    threads_of,
)

PRODUCTS_OVERFLOW = -1

PILOT_ROWS = 2048
"""Number of rows whose mean is the pilot; it only has to be near the mean."""


@dataclass(frozen=True)
class Moments:
    """Sums over samples, in float64 on the CPU; their size does not depend on the sample count.

    Attributes:
        pilot: Point that is subtracted from all features. Shape (dim,).
        counts: Number of samples of each class, int64. Shape (classes,).
        class_sums: Sum of features minus pilot for each class. Shape (classes, dim).
        scatter: Sum of outer products of features minus pilot over all samples. Shape (dim, dim).
    """

    pilot: Tensor
    counts: Tensor
    class_sums: Tensor
    scatter: Tensor

    @property
    def num_samples(self) -> int:
        """Number of samples in all classes."""
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


def empty_moments(
    pilot: Tensor, num_classes: int, device: torch.device = torch.device("cpu")
) -> Moments:
    """The moments of zero samples, with the sums of their features on a device."""
    dim = len(pilot)
    return Moments(
        pilot=pilot,
        counts=torch.zeros(num_classes, dtype=torch.int64),
        class_sums=torch.zeros(num_classes, dim, dtype=torch.float64, device=device),
        scatter=torch.zeros(dim, dim, dtype=torch.float64, device=device),
    )


def compute_moments(
    features: Tensor,
    labels: Tensor,
    pilot: Tensor,
    num_classes: int,
    *,
    matmul_dtype: torch.dtype = torch.float32,
) -> Moments:
    """Computes the moments of samples in memory, in one pass.

    Args:
        features: In any floating dtype, on any device. Shape (samples, dim).
        labels: Class indices below `num_classes`. Shape (samples,).
        pilot: Point to subtract; the same for all parts of a dataset. Shape (dim,).
        matmul_dtype: dtype of products within a batch of rows; sums over batches are float64.

    Raises:
        StatisticsError: Shapes disagree, a label is out of range, or a feature is not finite.
    """
    source = TensorBatches(features, labels.cpu())
    return accumulate_moments(source, pilot, num_classes, matmul_dtype=matmul_dtype)


def accumulate_moments(
    source: BatchSource[Batch],
    pilot: Tensor,
    num_classes: int,
    *,
    matmul_dtype: torch.dtype = torch.float32,
) -> Moments:
    """Computes the moments of batches, of which a few are in memory; see `compute_moments`."""
    device = source.device
    total = empty_moments(pilot, num_classes, device)
    offset = send(pilot.to(matmul_dtype), device)
    work = Workspace()

    def sum_batch(batch: Batch) -> _BatchSums:
        labels, blocks = source.read(batch, work)
        _check_labels(labels, num_classes)
        present, places = classes_to_sum(labels, num_classes, device)
        counts = torch.bincount(places, minlength=len(present))
        places = send(places, device)
        sums = offset.new_zeros(len(present), len(pilot))
        scatter = offset.new_zeros(len(pilot), len(pilot))
        first = 0
        for features in blocks:
            _check_dim(features, len(pilot))
            centred = work.centred(features, offset)
            add_rows(sums, places[first : first + len(features)], centred)
            add_upper_gram(centred, scatter)
            first += len(features)
        require_a_label_each(first, labels)
        if torch.isfinite(scatter.diagonal()).all():
            return _BatchSums(present, counts, sums, scatter)
        # Read again, so that no block of a batch without such rows is looked at for them.
        first_bad = _first_not_finite(source.read(batch, work)[1])
        return _BatchSums(present, counts, sums, scatter, first_bad)

    with one_thread_per_product():
        for batch_sums in map_in_order(sum_batch, source.batches(), threads_of(device)):
            total.counts.index_add_(0, batch_sums.present, batch_sums.counts)
            add_rows(total.class_sums, send(batch_sums.present, device), batch_sums.sums.double())
            total.scatter.add_(batch_sums.scatter)
            if batch_sums.first_bad is not None:
                first_row = total.num_samples - int(batch_sums.counts.sum())
                raise _not_finite(batch_sums.first_bad, first_row, matmul_dtype)
    class_sums, scatter = fetch_all([total.class_sums, total.scatter])
    return Moments(pilot, total.counts, class_sums, mirror_upper(scatter))


def classes_to_sum(labels: Tensor, num_classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The classes to make sums of, and the place of each label among them, both on the CPU.

    On the CPU these are the classes that occur. An accelerator adds zeros faster than it learns
    which classes those are.
    """
    if device.type != "cpu":
        return torch.arange(num_classes), labels.long()
    present, places = torch.unique(labels, return_inverse=True)
    return present, places


def add_rows(total: Tensor, places: Tensor, rows: Tensor) -> None:
    """Adds rows (samples, dim) to those of a total by their places (samples,), in a fixed order."""
    if total.device.type == "cpu":
        total.index_add_(0, places, rows)
    else:  # index_add_ adds in the order in which the threads of a GPU arrive
        total.index_put_((places,), rows, accumulate=True)


@dataclass(frozen=True)
class _BatchSums:
    """The contribution of one batch of rows to the moments, by the classes present in it.

    Only the upper triangle of the scatter is valid. `first_bad` is the first row that is not
    finite; PRODUCTS_OVERFLOW if only products are not.
    """

    present: Tensor
    counts: Tensor
    sums: Tensor
    scatter: Tensor
    first_bad: int | None = None


def _first_not_finite(blocks: Iterable[Tensor]) -> int:
    """The first row of some blocks that is not finite; PRODUCTS_OVERFLOW where all are."""
    first = 0
    for features in blocks:
        bad = (~torch.isfinite(features).all(dim=1)).nonzero().flatten()
        if len(bad):
            return first + int(bad[0])
        first += len(features)
    return PRODUCTS_OVERFLOW


def merge(parts: Sequence[Moments]) -> Moments:
    """Sums moments in the given order, relative to the pilot of the first.

    Raises:
        StatisticsError: There are no parts, or their dimensions or numbers of classes differ.
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
    """Moments of the same samples relative to another pilot."""
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


def require_finite(features: Tensor, row_numbers: Tensor) -> None:
    """Raises StatisticsError where features, (samples, dim), of rows so numbered are not finite."""
    bad = (~torch.isfinite(features)).any(dim=1).nonzero().flatten()
    if len(bad):
        raise _not_finite(0, int(row_numbers[bad[0]]))


def _not_finite(
    first_bad: int, first_row: int, matmul_dtype: torch.dtype | None = None
) -> StatisticsError:
    if first_bad == PRODUCTS_OVERFLOW and matmul_dtype == torch.float64:
        return StatisticsError(
            "the products of these features overflow float64",
            "divide the features by their largest value",
        )
    if first_bad == PRODUCTS_OVERFLOW:
        return StatisticsError(
            "the products of these features overflow float32",
            "fit with ",
            Setting("matmul_dtype", "float64"),
            parameter="matmul_dtype",
        )
    return StatisticsError(
        f"feature vectors hold NaN or infinity, the first of them in row {first_row + first_bad}",
        "extract them again with ",
        Setting("precision", "fp32"),
        parameter="precision",
    )
