"""WebDataset tar shards: the members `7.jpg` and `7.cls` (or `7.json`) form the sample `7`.

Headers are read once. Images are then read at their offset. From compressed or remote archives
they are read in order, several per request.
"""

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, ImageError, Setting
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.file_search import files_of_split, find_files_ending
from difficulty_service.datasets.image_openers import open_bytes, refusing
from difficulty_service.datasets.labels import index_labels, no_labels, several_labels_warning
from difficulty_service.datasets.listing import (
    Listing,
    build_dataset,
    check_options,
    skip_warnings,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import StoredFile, StoredPath, common_folder, open_file
from difficulty_service.datasets.tar_files import (
    TAR_EXTENSIONS,
    TarIndex,
    TarSample,
    read_in_order,
    read_tar_index,
)

_OF_FOLDERS = "; where the folders in a tar are the classes, name that tar itself"


@dataclass(frozen=True)
class _Members:
    """The locations of the images, ascending by archive and offset.

    Attributes:
        offsets: Offset of the first byte in the decompressed archive. Shape (samples,).
        problems: Reason by position, for samples without a readable image.
    """

    files: tuple[StoredFile, ...]
    archives: NDArray[np.int32]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    problems: dict[int, str]


def open_webdataset(location: str, options: DatasetOptions) -> Dataset:
    """Opens one tar, the tars that match a glob, or those in a folder, in sorted order.

    The label column is the key of the label in `.json` members. Ids are the keys, or `tar#key`
    where a key is in several tars, as of writers that count the samples of each from zero.
    """
    every = find_files_ending(location, options.boundary, TAR_EXTENSIONS, "tar")
    found = files_of_split(every, options.split, location, inside=False)
    files = found.files
    unused = ("split", "image_column", "id_column")
    check_options(replace(options, split=found.split), "WebDataset tars", unused)
    unlabelled = options.unlabelled
    indices = [read_tar_index(file, options.label_column, unlabelled=unlabelled) for file in files]
    samples = [sample for index in indices for sample in index.samples]
    if not samples and not unlabelled and any(index.skipped for index in indices):
        raise _no_labels(location, indices)
    archives = [archive for archive, index in enumerate(indices) for _ in index.samples]
    is_repeated = len({sample.key for sample in samples}) < len(samples)
    prefixes = _prefixes(files) if is_repeated else [""] * len(files)
    ids = [prefixes[at] + sample.key for at, sample in zip(archives, samples, strict=True)]
    skipped = [
        (prefix + key, reason)
        for prefix, index in zip(prefixes, indices, strict=True)
        for key, reason in index.skipped
    ]
    sources = max((index.labels for index in indices), key=len)

    def describe(row: int) -> str:
        return f"{samples[row].key!r} in {files[archives[row]].place.name!r}"

    if unlabelled:
        labels = no_labels(len(samples))
    else:
        values, names = _labels(samples)
        labels = index_labels(values, names, "the label", describe)
    rows = labels.rows.tolist()
    warnings = [*labels.notes, *_warn_of_images([index.further_images for index in indices])]
    if is_repeated:
        warnings.insert(0, "several tars have the same keys, so ids have the name of the tar first")
    if len(sources) > 1:
        warnings.append(several_labels_warning(sources[0], sources[1:]))
    images = [samples[row].image for row in rows]
    members = _Members(
        files=tuple(files),
        archives=np.array([archives[row] for row in rows], dtype=np.int32),
        offsets=np.array([image.offset for image in images], dtype=np.int64),
        sizes=np.array([image.size for image in images], dtype=np.int64),
        problems={i: image.problem for i, image in enumerate(images) if image.problem},
    )
    listing = Listing(
        labels.class_names,
        [ids[row] for row in rows],
        labels.labels,
        members.sizes,
        tuple((file.place.name, file.size) for file in files),
        skipped=[*skipped, *((ids[row], reason) for row, reason in labels.unlabelled)],
        warnings=tuple(warnings),
        containers=[file.place for file in files],
    )

    def describe_sample(position: int) -> str:
        return describe(rows[position])

    open_at = partial(_open_at, members)
    return build_dataset(location, options, listing, open_at, describe_sample)


def _prefixes(files: list[StoredFile]) -> list[str]:
    """What makes the keys of each tar unique: its path in the folder that all are in."""
    folder = common_folder(files)
    return [f"{posixpath.relpath(file.place.path, folder)}#" for file in files]


def _no_labels(location: str, indices: Sequence[TarIndex]) -> DatasetError:
    skipped = [entry for index in indices for entry in index.skipped]
    in_folders = all("/" in name for name, _ in skipped)
    return DatasetError(
        "; ".join((f"{location!r} has no sample with a label", *skip_warnings(skipped))),
        "name the key of the label in the .json members as ",
        Setting("label_column"),
        ", or score without labels by ",
        Setting("unlabelled", value=True),
        _OF_FOLDERS if in_folders else "",
        parameter="label_column",
    )


def _warn_of_images(further: Sequence[Counter[str]]) -> list[str]:
    """A sentence where samples have images that are not read."""
    total = sum(further, Counter[str]())
    if not total:
        return []
    named = [f".{extension} ({number:,})" for extension, number in total.most_common()]
    return [f"samples have more than one image, of which these are not read: {list_names(named)}"]


def _labels(samples: list[TarSample]) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Labels and class names as columns; integers beside text become text."""
    numbers = [isinstance(sample.label, int) for sample in samples]
    are_numbers = all(numbers) and any(numbers)
    given = [sample.label if are_numbers else str(sample.label) for sample in samples]
    kind = pa.int64() if are_numbers else pa.string()
    try:
        values = pa.chunked_array([pa.array(given, kind)])
        names = pa.array([sample.label_name for sample in samples], pa.string())
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"a label is not valid Unicode: {error}", "write its characters as UTF-8"
        ) from error
    except (pa.ArrowException, OverflowError) as error:
        raise DatasetError(f"a label is out of range: {error}") from error
    return values, pa.chunked_array([names])


def _open_at(members: _Members, positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
    archives = members.archives[positions]
    for archive in np.unique(archives).tolist():
        first, last = np.searchsorted(archives, [archive, archive + 1])
        place = members.files[archive].place
        inside = positions[first:last].tolist()
        if place.is_local and place.name.lower().endswith(".tar"):
            yield from (_local_opener(members, place, position) for position in inside)
        else:
            yield from _read_in_order(members, place, inside)


def _local_opener(members: _Members, place: StoredPath, position: int) -> ImageOpener:
    if position in members.problems:
        return refusing(members.problems[position])
    offset, size = int(members.offsets[position]), int(members.sizes[position])
    return partial(_open_member, place, offset, size)


def _open_member(place: StoredPath, offset: int, size: int) -> BinaryIO:
    try:
        with open_file(place) as archive:
            archive.seek(offset)
            data = archive.read(size)
    except OSError as error:
        raise ImageError(f"its tar cannot be read: {error.strerror or error}") from error
    if len(data) < size:
        raise ImageError("its tar has become shorter since it was listed")
    return open_bytes(data)


def _read_in_order(
    members: _Members, place: StoredPath, positions: list[int]
) -> Iterator[ImageOpener]:
    problems = members.problems
    spans = (
        None
        if position in problems
        else (int(members.offsets[position]), int(members.sizes[position]))
        for position in positions
    )
    for position, data in zip(positions, read_in_order(place, spans), strict=True):
        yield refusing(problems[position]) if position in problems else partial(open_bytes, data)
