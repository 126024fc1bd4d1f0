"""What every kind of dataset has in common: options, unique ids, the limit, the fingerprint."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.errors import DatasetError, DuplicateSampleId

OpenAt = Callable[[NDArray[np.int64]], Iterator[ImageOpener]]
"""Given ascending positions in a listing, yields the openers of their images in order."""

_IDS_PER_HASH = 65_536


@dataclass(frozen=True)
class Listing:
    """Every sample that a kind of dataset found, before any limit.

    Attributes:
        class_names: Name of each class index.
        sample_ids: One id per sample, in order.
        labels: Class indices. Shape (samples,).
        sizes: Encoded bytes of each image, 0 where only the files know. Shape (samples,).
        files: Facts of the files that belong into the fingerprint.
    """

    class_names: tuple[str, ...]
    sample_ids: Sequence[str]
    labels: NDArray[np.int32]
    sizes: NDArray[np.int64]
    files: tuple[object, ...] = ()


def as_text(path: str) -> str:
    """A path as text that every file format can hold; bytes that are no UTF-8 are spelled out."""
    if path.isascii():
        return path
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def check_options(options: DatasetOptions, kind: str, unused: tuple[str, ...]) -> None:
    """Refuses options that make no sense, for this kind of dataset or at all.

    Raises:
        DatasetError: One does.
    """
    for name in ("limit", "shard_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise DatasetError(f"--{name.replace('_', '-')} is {value}; expected 1 or more")
    for name in unused:
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise DatasetError(f"{option} has no meaning for {kind}; leave it out")


def build_dataset(
    location: str,
    options: DatasetOptions,
    listing: Listing,
    open_at: OpenAt,
    describe: Callable[[int], str],
) -> Dataset:
    """The dataset of a listing: ids checked, limit applied, fingerprint taken.

    Args:
        location: As given.
        options: Its limit and shard size are used here.
        listing: Every sample.
        open_at: Opens images by their position in the listing.
        describe: Where the sample at a position is, for a message about two with one id.

    Raises:
        DatasetError: There is no sample.
        DuplicateSampleId: Two samples share an id.
    """
    if not len(listing.labels):
        raise DatasetError(f"{location!r} holds no sample; check the path, the split and the files")
    _refuse_duplicates(listing.sample_ids, describe)
    chosen = choose_positions(listing.labels, options.limit)
    if len(chosen) < len(listing.labels):
        listing = Listing(
            listing.class_names,
            [listing.sample_ids[position] for position in chosen.tolist()],
            listing.labels[chosen],
            listing.sizes[chosen],
            listing.files,
        )
    return Dataset(
        location=location,
        class_names=listing.class_names,
        sample_ids=listing.sample_ids,
        labels=listing.labels,
        fingerprint=fingerprint(listing),
        shard_size=options.shard_size,
        open_images=partial(_open_chosen, open_at, chosen),
    )


def _open_chosen(
    open_at: OpenAt, chosen: NDArray[np.int64], positions: range
) -> Iterator[ImageOpener]:
    return open_at(chosen[positions.start : positions.stop : positions.step])


def _refuse_duplicates(sample_ids: Sequence[str], describe: Callable[[int], str]) -> None:
    if len(set(sample_ids)) == len(sample_ids):
        return
    first_positions: dict[str, int] = {}
    for position, sample_id in enumerate(sample_ids):
        first = first_positions.setdefault(sample_id, position)
        if first != position:
            raise DuplicateSampleId(
                f"the id {sample_id!r} belongs to two samples, {describe(first)} and "
                f"{describe(position)}; ids must tell samples apart"
            )


def choose_positions(labels: NDArray[np.int32], limit: int | None) -> NDArray[np.int64]:
    """Ascending positions of the samples to use, evenly spaced inside each class.

    Spacing over the classes and not over the file keeps every class with its share where the
    limit allows, even where labels repeat in step with the spacing.

    Args:
        labels: Class indices. Shape (samples,).
        limit: How many; None for all.

    Returns:
        Shape (min(limit, samples),).
    """
    num_samples = len(labels)
    if limit is None or limit >= num_samples:
        return np.arange(num_samples)
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    if limit < len(counts):
        return np.arange(limit) * num_samples // limit
    by_class = np.argsort(labels, kind="stable")
    # One sample of each class first; the rest in proportion, by rounding the running total.
    rest, wanted = np.cumsum(counts - 1), limit - len(counts)
    shares = 1 + np.diff(rest * wanted // max(int(rest[-1]), 1), prepend=0)
    starts = np.cumsum(counts) - counts
    chosen = [
        by_class[start + np.arange(share) * count // share]
        for start, share, count in zip(starts, shares, counts, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def fingerprint(listing: Listing) -> str:
    """Hex SHA-256 of class names, ids, labels, sizes and facts of the files.

    Neither the place of the dataset nor any time enters, so a copy has the same one.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps([listing.class_names, listing.files]).encode())
    ids = listing.sample_ids
    for start in range(0, len(ids), _IDS_PER_HASH):
        digest.update(json.dumps(ids[start : start + _IDS_PER_HASH]).encode())
    digest.update(listing.labels.astype("<i4").tobytes())
    digest.update(listing.sizes.astype("<i8").tobytes())
    return digest.hexdigest()
