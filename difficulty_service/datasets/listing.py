"""Steps that all kinds of datasets share: options, unique ids, limit and fingerprint."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, DuplicateSampleId
from difficulty_service.base.files import file_stamp
from difficulty_service.base.wording import count_of, is_or_are, list_names
from difficulty_service.datasets.sample import (
    UNLABELLED,
    Dataset,
    DatasetOptions,
    ImageOpener,
    Skipped,
)
from difficulty_service.datasets.storage import StoredPath

OpenAt = Callable[[NDArray[np.int64]], Iterator[ImageOpener]]
"""Function that yields the openers of the images at ascending positions in a listing."""

MAX_NAME_LENGTH = 1000
MAX_ID_LENGTH = 10_000
_IDS_PER_HASH = 65_536
_SHOWN_LENGTH = 200
_SHOWN = 3
_SHOWN_REASONS = 20


@dataclass(frozen=True)
class Listing:
    """All samples of a dataset, before any limit.

    Attributes:
        sizes: Encoded bytes of each image, 0 if unknown. Shape (samples,).
    """

    class_names: tuple[str, ...]
    sample_ids: Sequence[str]
    labels: NDArray[np.int32]
    sizes: NDArray[np.int64]
    files: tuple[object, ...] = ()
    skipped: Sequence[Skipped] = ()
    warnings: tuple[str, ...] = ()
    containers: Sequence[StoredPath] = ()


def as_text(path: str) -> str:
    """A path as valid Unicode, with escapes for bytes that are not UTF-8."""
    if path.isascii():
        return path
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def check_options(
    options: DatasetOptions,
    kind: str,
    unused: tuple[str, ...] = ("image_column", "label_column", "id_column"),
) -> None:
    """Refuses options that are out of range or do not apply to this kind of dataset."""
    for name in ("limit", "shard_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise DatasetError(f"{name} is {value}", "expected 1 or more", parameter=name)
    for name in unused:
        if getattr(options, name) is not None:
            raise DatasetError.leave_out(f"{name} does not apply to {kind}", name)


def build_dataset(
    location: str,
    options: DatasetOptions,
    listing: Listing,
    open_at: OpenAt,
    describe: Callable[[int], str],
) -> Dataset:
    """Makes a dataset of a listing: checks ids, applies the limit, computes the fingerprint."""
    warnings = (*listing.warnings, *skip_warnings(listing.skipped))
    if not len(listing.labels):
        raise DatasetError.of_location(
            "; ".join((f"{location!r} has no samples", *warnings)),
            "check the path, the split and the files",
        )
    check_names(listing.class_names)
    _refuse_long(listing.sample_ids, MAX_ID_LENGTH, "an id")
    _refuse_duplicates(listing.sample_ids, describe)
    chosen = choose_positions(listing.labels, options.limit)
    if len(chosen) < len(listing.labels):
        listing = replace(
            listing,
            sample_ids=[listing.sample_ids[position] for position in chosen.tolist()],
            labels=listing.labels[chosen],
            sizes=listing.sizes[chosen],
        )
    stamps = [file_stamp(place.path) for place in listing.containers if place.is_local]
    return Dataset(
        location=location,
        class_names=listing.class_names,
        sample_ids=listing.sample_ids,
        labels=listing.labels,
        fingerprint=fingerprint(listing),
        shard_size=options.shard_size,
        open_images=partial(_open_chosen, open_at, chosen),
        modality=options.modality,
        containers=hashlib.sha256(json.dumps(stamps).encode()).hexdigest() if stamps else None,
        skipped=listing.skipped,
        warnings=warnings,
    )


def without_labels(dataset: Dataset) -> Dataset:
    """The same samples without their labels; one without labels is as it was."""
    if not dataset.has_labels:
        return dataset
    digest = hashlib.sha256(f"{dataset.fingerprint} {UNLABELLED}".encode())
    return replace(
        dataset,
        class_names=(UNLABELLED,),
        labels=np.zeros_like(dataset.labels),
        fingerprint=digest.hexdigest(),
    )


def skip_warnings(skipped: Sequence[Skipped]) -> list[str]:
    """One sentence for each reason, with the number of skipped entries and the first few."""
    entries: dict[str, list[str]] = {}
    for name, reason in skipped:
        entries.setdefault(reason, []).append(name)
    sentences = []
    for reason, names in list(entries.items())[:_SHOWN_REASONS]:
        what = f"{count_of(len(names), 'entry', 'entries')} {is_or_are(len(names))}"
        shown = list_names([repr(name[:_SHOWN_LENGTH]) for name in names], _SHOWN)
        sentences.append(f"{what} skipped ({reason}): {shown}")
    others = sum(len(names) for names in list(entries.values())[_SHOWN_REASONS:])
    if others:
        sentences.append(f"{others:,} more entries are skipped for other reasons")
    return sentences


def _open_chosen(
    open_at: OpenAt, chosen: NDArray[np.int64], positions: Sequence[int]
) -> Iterator[ImageOpener]:
    return open_at(chosen[np.asarray(positions, np.int64)])


def check_names(class_names: Sequence[str]) -> None:
    """Refuses class names that are too long, or that no file can hold."""
    _refuse_long(class_names, MAX_NAME_LENGTH, "the name of a class")
    for name in class_names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise DatasetError(
                f"the class {name!r} is not valid Unicode", "write its characters as UTF-8"
            ) from error


def _refuse_long(texts: Sequence[str], max_length: int, what: str) -> None:
    if max(map(len, texts), default=0) > max_length:
        text = next(text for text in texts if len(text) > max_length)
        raise DatasetError(
            f"{what} has {len(text):,} characters, the maximum is {max_length:,}: {text[:50]!r}...",
            "shorten it",
        )


def _refuse_duplicates(sample_ids: Sequence[str], describe: Callable[[int], str]) -> None:
    if len(set(sample_ids)) == len(sample_ids):
        return
    first_positions: dict[str, int] = {}
    for position, sample_id in enumerate(sample_ids):
        first = first_positions.setdefault(sample_id, position)
        if first != position:
            raise DuplicateSampleId(
                f"the id {sample_id!r} belongs to two samples, {describe(first)} and "
                f"{describe(position)}",
                "ids must be unique",
            )


def choose_positions(labels: NDArray[np.int32], limit: int | None) -> NDArray[np.int64]:
    """Ascending positions of at most `limit` samples to use, evenly spaced within each class.

    Spacing within classes and not over the whole file keeps the proportions of all classes as far
    as the limit allows, even if the labels are periodic.
    """
    num_samples = len(labels)
    if limit is None or limit >= num_samples:
        return np.arange(num_samples)
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    if limit < len(counts):
        return np.arange(limit) * num_samples // limit
    by_class = np.argsort(labels, kind="stable")
    shares = _shares(counts, np.ones_like(counts), limit)
    starts = np.cumsum(counts) - counts
    chosen = [
        by_class[start + np.arange(share) * count // share]
        for start, share, count in zip(starts, shares, counts, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def _shares(counts: NDArray[np.int64], first: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Samples of each class: so many first, the rest in proportion to what is left of each."""
    # By rounding the running total, so that the shares add up.
    rest, remaining = np.cumsum(counts - first), limit - int(first.sum())
    return first + np.diff(rest * remaining // max(int(rest[-1]), 1), prepend=0)


EACH = 5
"""Samples of a class that a random choice has at least, so that they can be compared."""

USUAL_DRAW, MOST_USUALLY_DRAWN = 2_000, 10_000


def usual_draw(labels: NDArray[np.int32]) -> int:
    """Samples to draw where nobody says how many: USUAL_DRAW, or more for EACH of many classes."""
    return max(USUAL_DRAW, min(EACH * len(np.unique(labels)), MOST_USUALLY_DRAWN))


def draw_positions(labels: NDArray[np.int32], size: int, seed: int) -> NDArray[np.int64]:
    """Ascending positions of `size` samples, drawn at random within each class; or of all.

    Each class has EACH samples or all of its own, and the rest is in proportion. Where that is more
    than `size`, at least twice EACH, random classes stand for all.
    """
    if size >= len(labels):
        return np.arange(len(labels))
    random = np.random.default_rng(seed)
    ends = np.cumsum(np.bincount(labels))[:-1]
    by_class = np.split(np.argsort(labels, kind="stable"), ends)
    # A class of one sample has nothing to be compared with, and another one has that as well.
    classes = [each for each in by_class if len(each) > 1]
    first = np.array([min(len(each), EACH) for each in classes], dtype=np.int64)
    order = random.permutation(len(classes))
    kept = np.sort(order[: np.searchsorted(np.cumsum(first[order]), size, side="right")])
    counts = np.array([len(classes[each]) for each in kept], dtype=np.int64)
    shares = np.minimum(_shares(counts, first[kept], size), counts)
    chosen = [
        random.choice(classes[each], share, replace=False, shuffle=False)
        for each, share in zip(kept.tolist(), shares.tolist(), strict=True)
    ]
    return np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))


def choose_samples(dataset: Dataset, positions: NDArray[np.int64]) -> Dataset:
    """Some samples of a dataset by their positions, ascending, with the classes of all."""
    digest = hashlib.sha256(dataset.fingerprint.encode() + positions.astype("<i8").tobytes())
    return replace(
        dataset,
        sample_ids=[dataset.sample_ids[position] for position in positions.tolist()],
        labels=dataset.labels[positions],
        fingerprint=digest.hexdigest(),
        open_images=partial(_open_positions, dataset.open_images, positions),
    )


def _open_positions(
    open_images: Callable[[Sequence[int]], Iterator[ImageOpener]],
    chosen: NDArray[np.int64],
    positions: Sequence[int],
) -> Iterator[ImageOpener]:
    return open_images(chosen[np.asarray(positions, np.int64)].tolist())


def fingerprint(listing: Listing) -> str:
    """Hex SHA-256 of class names, ids, labels, sizes and properties of the files.

    It contains neither the location nor any time, so a copy has the same fingerprint.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps([listing.class_names, listing.files]).encode())
    ids = listing.sample_ids
    for start in range(0, len(ids), _IDS_PER_HASH):
        digest.update(json.dumps(ids[start : start + _IDS_PER_HASH]).encode())
    digest.update(listing.labels.astype("<i4").tobytes())
    digest.update(listing.sizes.astype("<i8").tobytes())
    return digest.hexdigest()
