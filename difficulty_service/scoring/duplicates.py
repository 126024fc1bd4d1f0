"""Samples whose features are those of an earlier sample, to the last bit or nearly.

Copies of an image have the same features where the network rounds all images alike. While a store
is scored each row is hashed to eight bytes, which costs next to nothing; rows with the same hash
are then read again and compared by a cryptographic digest. Only samples that have copies are kept
in memory. Samples whose features have a large cosine with those of an earlier one are often copies
of an image that were compressed again, resized, cropped or mirrored.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.tables import strings_to_arrow
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.products import BLOCK_ROWS, row_ranges
from difficulty_service.scorers.near_copies import near_pairs

HASHES_PER_BATCH = 1 << 16
"""Number of hashes that are looked up at a time."""


@dataclass(frozen=True)
class Copy:
    """A sample that has copies."""

    sample_id: str
    label: int


@dataclass(frozen=True)
class Duplicates:
    """The copies, exact or near, among the samples of a store.

    Attributes:
        positions: Positions of the copies, ascending; the first sample of a group is none.
            Shape (copies,).
        groups: Index of the group of samples with the same first sample. Shape (copies,).
        first_ids: Id of the first sample of each group. Shape (groups,).
        conflict: The first such sample, and its first copy with another label; None where there
            are none.
    """

    positions: NDArray[np.int64]
    groups: NDArray[np.int64]
    first_ids: pa.StringArray
    num_conflicting: int = 0
    conflict: tuple[Copy, Copy] | None = None

    def column(self, start: int, num_rows: int) -> pa.StringArray:
        """Id of the first sample of each group from position `start` on; null for other samples."""
        copies = slice(*np.searchsorted(self.positions, (start, start + num_rows)))
        rows = self.positions[copies] - start
        groups, known = np.zeros(num_rows, np.int64), np.zeros(num_rows, bool)
        groups[rows], known[rows] = self.groups[copies], True
        validity = pa.py_buffer(np.packbits(known, bitorder="little"))
        return self.first_ids.take(
            pa.Array.from_buffers(pa.int64(), num_rows, [validity, pa.py_buffer(groups)])
        )


def hash_rows(features: Tensor) -> Tensor:
    """A hash of each row of float32: equal rows have equal ones, and others hardly ever do.

    The dot product of the row's bytes, as integers, with fixed random odd numbers, modulo 2^64,
    read as int64. From shape (rows, dim) to (rows,), on the same device.
    """
    if features.device.type != "cpu":
        return _hash_there(features.contiguous())
    rows = features.contiguous().numpy()
    words = rows.view(np.uint64) if rows.shape[1] % 2 == 0 else rows.view(np.uint32)
    words = words.astype(np.uint64, copy=False)
    return torch.from_numpy(np.einsum("ij,j->i", words, _factors(words.shape[1])).view(np.int64))


def _hash_there(rows: Tensor) -> Tensor:
    """As `hash_rows`, on an accelerator, which has no unsigned integers."""
    if rows.shape[1] % 2 == 0:
        words = rows.view(torch.int64)
    else:
        words = rows.view(torch.int32).long().bitwise_and_((1 << 32) - 1)
    factors = torch.from_numpy(_factors(words.shape[1]).view(np.int64))
    return (words * send(factors, rows.device)).sum(dim=1)


@cache
def _factors(number: int) -> NDArray[np.uint64]:
    """Odd numbers, always the same. Shape (number,)."""
    return np.random.default_rng(0).integers(0, 1 << 63, number, dtype=np.uint64) * 2 + 1


def find_duplicates(store: FeatureSource, hashes: NDArray[np.int64]) -> Duplicates:
    """Copies among the samples of a store with one row each, by `hash_rows`. Shape (samples,)."""
    candidates = _repeated(hashes)
    group_of: dict[bytes, int] = {}
    firsts: list[Copy] = []
    sizes: list[int] = []
    others: dict[int, Copy] = {}
    groups = np.empty(len(candidates), np.int64)
    is_copy = np.zeros(len(candidates), bool)
    for index, (digest, sample) in enumerate(_read(store, candidates)):
        group = groups[index] = group_of.setdefault(digest, len(firsts))
        if group == len(firsts):
            firsts.append(sample)
            sizes.append(1)
            continue
        is_copy[index] = True
        sizes[group] += 1
        if sample.label != firsts[group].label:
            others.setdefault(group, sample)
    first_conflict = min(others, default=None)
    return Duplicates(
        positions=candidates[is_copy],
        groups=groups[is_copy],
        first_ids=strings_to_arrow([sample.sample_id for sample in firsts]),
        num_conflicting=sum(sizes[group] for group in others),
        conflict=None
        if first_conflict is None
        else (firsts[first_conflict], others[first_conflict]),
    )


def _repeated(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the hashes that occur more than once, ascending."""
    ordered = np.sort(hashes)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(repeated):
        return np.empty(0, np.int64)
    positions = []
    for rows in row_ranges(len(hashes), HASHES_PER_BATCH):
        places = np.searchsorted(repeated, hashes[rows]).clip(max=len(repeated) - 1)
        positions.append(rows.start + np.flatnonzero(repeated[places] == hashes[rows]))
    return np.concatenate(positions)


def _read(store: FeatureSource, positions: NDArray[np.int64]) -> Iterator[tuple[bytes, Copy]]:
    """Digests of the features of the samples at ascending positions, and the samples."""
    start = 0
    for shard in range(store.num_shards):
        if not len(positions) or start > positions[-1]:
            return
        opened = store.open_shard(shard, ["sample_id"])
        for block in row_ranges(len(opened.labels), BLOCK_ROWS):
            first, last = np.searchsorted(positions, (start + block.start, start + block.stop))
            if first == last:
                continue
            rows = positions[first:last] - start
            span = slice(int(rows[0]), int(rows[-1]) + 1)
            features = opened.read_features(span).cpu().numpy()
            ids = opened.sample_ids[span].to_pylist()
            for row in rows - span.start:
                digest = hashlib.blake2b(features[row].tobytes(), digest_size=16).digest()
                yield digest, Copy(ids[row], int(opened.labels[span.start + row]))
        start += len(opened.labels)


def find_near_duplicates(store: FeatureSource, num_samples: int, threshold: float) -> Duplicates:
    """Near duplicates among the samples of a store; holds all features in memory, in float32.

    For each sample with a near duplicate before it in the store, the earliest one. Samples are
    conflicting where any of their near duplicates has another label. The features of a sample with
    several rows are averaged. The threshold is the smallest cosine, in (0, 1].
    """
    features, labels, ids = _read_rows(store, num_samples)
    firsts = np.arange(num_samples)
    conflicting = np.zeros(num_samples, bool)
    conflicts: list[tuple[int, int]] = []
    for later, earlier in near_pairs(features, threshold):
        np.minimum.at(firsts, later, earlier)
        differ = labels[later] != labels[earlier]
        if differ.any():
            conflicting[later[differ]] = conflicting[earlier[differ]] = True
            first = earlier[differ].min()
            second = later[differ & (earlier == first)].min()
            conflicts.append((int(first), int(second)))
    positions = np.flatnonzero(firsts < np.arange(num_samples))
    originals, groups = np.unique(firsts[positions], return_inverse=True)
    one, other = (
        Copy(ids[position].as_py(), int(labels[position]))
        for position in min(conflicts, default=(0, 0))
    )
    return Duplicates(
        positions=positions,
        groups=groups,
        first_ids=ids.take(pa.array(originals)),
        num_conflicting=int(conflicting.sum()),
        conflict=(one, other) if conflicts else None,
    )


def _read_rows(
    store: FeatureSource, num_samples: int
) -> tuple[Tensor, NDArray[np.int64], pa.StringArray]:
    """Features of unit length, float32 and where they were, with labels and ids of the samples."""
    features = torch.empty(0)
    labels = np.empty(num_samples, np.int64)
    ids = []
    start = 0
    for shard in range(store.num_shards):
        opened = store.open_shard(shard, ["sample_id"])
        rows = opened.features()
        rows = rows.view(-1, store.runs, rows.shape[1]).mean(dim=1)
        if not start:
            features = torch.empty(num_samples, rows.shape[1], device=store.device)
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
        samples = slice(start, start + len(rows))
        features[samples] = rows / lengths.clamp_min(torch.finfo(torch.float64).tiny)
        labels[samples] = opened.labels[:: store.runs].numpy()
        ids.append(opened.sample_ids[:: store.runs])
        start = samples.stop
    return features, labels, pa.concat_arrays(ids)
