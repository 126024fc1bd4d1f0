"""Labelled features in memory, read like a feature store without being written to one."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import DatasetError, DuplicateSampleId
from difficulty_service.base.tables import to_arrow
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.features.array_columns import ClassLabels
from difficulty_service.features.description import UNKNOWN, FeatureDescription
from difficulty_service.features.shard import NO_IDS, OpenShard

CPU = torch.device("cpu")

SHARD_ROWS = 4096
"""Rows of a shard; also the default of a store, so that both are summed in the same order."""

FINGERPRINT_ROWS = 256
"""Number of evenly spaced feature rows in the fingerprint, beside all ids and labels."""

KEPT_DTYPES = (torch.float32, torch.float64)
"""Types that are computed with as they are; all others become float32."""


@dataclass(frozen=True)
class ArrayFeatures:
    """Features in memory, as a source of features; made by `array_features`.

    Attributes:
        features: Any number type, strides and device; never written to. Shape (all rows, dim).
        positions: Rows of `features` to use, ascending; None for all. Shape (rows,).
        labels: Class indices, int64. Shape (rows,).
        sample_ids: Strings. Shape (rows,).
        warnings: Warnings about rows that are not used, one sentence each.
        digests: What each row was read from, as in a feature store; None where that is not known.
            Shape (rows,).
        device: Device on which they are read: the CPU, or where `features` are.
    """

    features: Tensor
    positions: Tensor | None
    labels: Tensor
    sample_ids: pa.Array
    description: FeatureDescription
    warnings: tuple[str, ...] = ()
    digests: pa.FixedSizeBinaryArray | None = None
    device: torch.device = CPU

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class index."""
        return self.description.class_names

    @property
    def num_shards(self) -> int:
        """Number of shards of SHARD_ROWS rows each; the last one may have fewer."""
        return -(-len(self.labels) // SHARD_ROWS)

    @property
    def runs(self) -> int:
        """Number of rows per sample."""
        return 1

    @property
    def shard_rows(self) -> int:
        """Maximum number of rows of a shard."""
        return SHARD_ROWS

    def slices(self, num_rows: int) -> Iterator[tuple[int, slice]]:
        """All rows, at most `num_rows` at a time, as shards and slices of them."""
        for shard in range(self.num_shards):
            for start in range(0, SHARD_ROWS, num_rows):
                yield shard, slice(start, min(start + num_rows, SHARD_ROWS))

    def open_shard(
        self, shard: int, columns: Sequence[str] = ("sample_id", "run"), rows: slice | None = None
    ) -> OpenShard:
        """A shard, or some rows of it; see `FeatureSource`."""
        first = shard * SHARD_ROWS
        labels = self.labels[first : first + SHARD_ROWS]
        start, stop, _ = (rows or slice(None)).indices(len(labels))
        ids = self.sample_ids.slice(first + start, max(0, stop - start))
        return OpenShard(
            sample_ids=ids if "sample_id" in columns else NO_IDS,
            labels=labels[start:stop],
            runs=torch.zeros(len(labels[start:stop]), dtype=torch.int64),
            read_features=partial(self._read, first + start),
        )

    def contents(self, shard: int) -> pa.FixedSizeBinaryArray | None:
        """Digest of what each sample of a shard was read from; None where that is not known."""
        return None if self.digests is None else self.digests.slice(shard * SHARD_ROWS, SHARD_ROWS)

    def appearance(self, shard: int) -> None:
        """None: nobody knows how the samples look."""

    def _read(self, first: int, rows: slice) -> Tensor:
        """Features of rows counted from `first`, contiguous. Shape (rows, dim)."""
        chosen = slice(first + rows.start, first + rows.stop)
        return computable(
            self.features[chosen]
            if self.positions is None
            else self.features[send(self.positions[chosen], self.features.device)],
            self.device,
        )


def computable(rows: Tensor, device: torch.device = CPU) -> Tensor:
    """Rows on a device, contiguous, as float32 or float64; without a copy where they are that."""
    return rows.to(device, max_precision(rows.dtype)).contiguous()


def array_features(
    features: Tensor,
    labels: ClassLabels,
    sample_ids: pa.Array | None,
    origin: str,
    device: torch.device = CPU,
) -> ArrayFeatures:
    """Labelled features, without the rows that cannot be used.

    Args:
        features: Any number type, strides and device. Shape (rows, dim).
        sample_ids: Strings without nulls; None for the numbers of the rows, counted from 0.
        device: Device on which they are read: the CPU, or where `features` are.
    """
    _require_same_length(features, labels.indices, sample_ids)
    if not len(features):
        raise DatasetError("the features have no rows", parameter="features")
    if sample_ids is None:
        sample_ids = to_arrow(np.arange(len(features))).cast(pa.string())
    else:
        _refuse_duplicates(sample_ids)
    labelled = labels.indices >= 0
    finite = finite_rows(features)
    usable = labelled & finite
    if not usable.any():
        raise DatasetError(
            f"none of the {len(features):,} rows has both a label and finite features",
            parameter="features",
        )
    positions = None if usable.all() else usable.nonzero().flatten()
    if positions is not None:
        sample_ids = sample_ids.take(to_arrow(positions.numpy()))
    chosen = labels.indices if positions is None else labels.indices[positions]
    return ArrayFeatures(
        features=features,
        positions=positions,
        labels=chosen,
        sample_ids=sample_ids,
        description=_describe(features, labels.names, (chosen, sample_ids), origin),
        device=device,
        warnings=(
            *labels.notes,
            *(
                f"rows left out because {reason}: {count:,} of {len(features):,}"
                for reason, count in (
                    ("they have no label", int((~labelled).sum())),
                    ("their features hold NaN or infinity", int((labelled & ~finite).sum())),
                )
                if count
            ),
        ),
    )


def finite_rows(features: Tensor) -> Tensor:
    """Whether all numbers of a row are finite. Shape (rows,), on the CPU."""
    if not features.is_floating_point():
        return torch.ones(len(features), dtype=torch.bool)

    def check(rows: slice) -> Tensor:
        part = features[rows]
        # One pass over memory; a sum that overflows is looked at again.
        finite = torch.isfinite(part.sum(dim=1, dtype=max_precision(part.dtype))).cpu()
        if not finite.all():
            blocks = part.split(SHARD_ROWS)
            finite = torch.cat([torch.isfinite(block).all(dim=1) for block in blocks]).cpu()
        return finite

    # An accelerator sums all rows at once, because each answer is waited for.
    step = SHARD_ROWS if features.device.type == "cpu" else max(1, len(features))
    ranges = (slice(start, start + step) for start in range(0, len(features), step))
    return torch.cat(list(map_in_order(check, ranges, num_workers())))


def max_precision(dtype: torch.dtype) -> torch.dtype:
    """The type to compute in: at least float32."""
    return dtype if dtype in KEPT_DTYPES else torch.float32


def _require_same_length(features: Tensor, indices: Tensor, sample_ids: pa.Array | None) -> None:
    if features.ndim != 2 or not features.shape[1]:  # noqa: PLR2004
        raise DatasetError(
            f"features have shape {tuple(features.shape)}, expected (samples, dimensions)",
            parameter="features",
        )
    if len(features) != len(indices):
        raise DatasetError(
            f"there are {len(features):,} feature rows but {len(indices):,} labels",
            "every row needs a label; a missing one is null",
            parameter="labels",
        )
    if sample_ids is not None and len(sample_ids) != len(features):
        raise DatasetError(
            f"there are {len(features):,} feature rows but {len(sample_ids):,} ids", parameter="ids"
        )


def _refuse_duplicates(sample_ids: pa.Array) -> None:
    if sample_ids.null_count:
        raise DatasetError(
            f"{sample_ids.null_count:,} ids are null", "every row needs an id", parameter="ids"
        )
    if pc.count_distinct(sample_ids).as_py() < len(sample_ids):
        counts = pc.value_counts(sample_ids)
        twice = pc.greater(counts.field("counts"), 1)
        example = counts.field("values").filter(twice)[0].as_py()
        raise DuplicateSampleId(
            f"the id {example!r} belongs to several rows", "ids must be unique", parameter="ids"
        )


def _describe(
    features: Tensor, class_names: Sequence[str], samples: tuple[Tensor, pa.Array], origin: str
) -> FeatureDescription:
    """The description of a feature store; the fields of a backbone are null."""
    labels, sample_ids = samples
    steps = range(0, len(features), max(1, len(features) // FINGERPRINT_ROWS))
    some_rows = features[steps.start : steps.stop : steps.step].float().cpu().contiguous()
    digest = hashlib.sha256(repr(tuple(features.shape)).encode())
    digest.update(some_rows.numpy().tobytes())
    digest.update(labels.numpy().tobytes())
    digest.update("\0".join(class_names).encode())
    for buffer in pa.concat_arrays([sample_ids]).buffers()[1:]:
        digest.update(buffer or b"")
    return FeatureDescription(
        **UNKNOWN | {"feature_dim": features.shape[1]},
        modality="sample",
        dataset=origin,
        fingerprint=digest.hexdigest(),
        class_names=tuple(class_names),
        num_samples=len(features),
        num_shards=-(-len(labels) // SHARD_ROWS),
        shard_size=SHARD_ROWS,
        augment_runs=0,
        seed=0,
        package_version=version("difficulty-service"),
    )
