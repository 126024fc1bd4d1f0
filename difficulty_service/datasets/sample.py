"""The interface of all datasets: shards of samples with an id, an encoded image and a label."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.wording import Noun
from difficulty_service.datasets.storage import Boundary, StoredPath
from difficulty_service.images.opener import ImageOpener as ImageOpener

UNLABELLED = "unlabelled"
"""Name of the only class of a dataset without labels."""

Skipped = tuple[str, str]
"""Path or id of an entry of a dataset that cannot be a sample, and the reason."""


def has_labels(class_names: Sequence[str]) -> bool:
    """Whether samples of these classes have labels."""
    return tuple(class_names) != (UNLABELLED,)


@dataclass(frozen=True)
class FileOpener:
    """Opener of an image that is a local file of its own.

    Attributes:
        open: Function that opens it.
    """

    path: str
    open: ImageOpener

    def __call__(self) -> BinaryIO:
        """Opens the file."""
        return self.open()


@dataclass(frozen=True)
class Sample:
    """One labelled image, not yet read.

    Attributes:
        sample_id: Id that is unique in the dataset and stable across machines and runs.
        open: Function that opens the encoded image.
        file: Path of the local file that is the image; None for an image in a table, in an archive
            or on remote storage.
    """

    sample_id: str
    label: int
    open: ImageOpener
    file: str | None = None


@dataclass(frozen=True)
class TableLimits:
    """Limits for tables of people who are not trusted, such as the clients of a service.

    Attributes:
        max_text_bytes: Maximum number of bytes of labels, ids and columns to show in memory, per
            file.
    """

    max_rows: int
    max_text_bytes: int


@dataclass(frozen=True)
class DatasetOptions:
    """Options for reading a dataset; an option that does not apply to its kind is an error.

    Attributes:
        format: How the dataset is read, a key of DATASETS; None to recognise it.
        split: Sub-folder or named split to read, if the dataset has several.
        image_column: Column of a table with image bytes or paths; None to detect it.
        label_column: Column of a table with the labels; None to detect it.
        id_column: Column whose text is the sample id; None to use a column of unique paths, or
            else `file#row`.
        text_column: Column of a table whose texts are the samples; None for images.
        class_names: Names of the classes whose labels are 0, 1, 2, ...; none for those of the
            dataset.
        unlabelled: Whether labels are ignored, so that all samples are of the class UNLABELLED.
        outlines: Whether what is outside of the outline of an object becomes grey.
        limit: Number of samples to use, evenly spaced over the dataset; None for all.
        shard_size: Number of samples per shard, the unit of work and of resuming.
        boundary: Root outside which nothing may be read; None to allow links, paths and URIs that
            lead anywhere.
        limits: Limits for tables; None for those that their owner reads.
    """

    format: str | None = None
    split: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    text_column: str | None = None
    class_names: tuple[str, ...] = ()
    unlabelled: bool = False
    outlines: bool = False
    limit: int | None = None
    shard_size: int = 4096
    boundary: Boundary | None = None
    limits: TableLimits | None = None

    @property
    def modality(self) -> Literal["image", "text"]:
        """`image` or `text`, what the samples are."""
        return "image" if self.text_column is None else "text"


Content = bytes | Callable[[Path], None]
"""New content of a file, or a function that writes it to a path."""


@dataclass(frozen=True)
class Revision:
    """The files of a dataset in which some samples have another class or are gone.

    Attributes:
        root: Folder that all files are below.
        changed: New content of files by their paths below the root.
        others: Paths below the root of the files that stay as they are.
        unknown: Ids that are not in the dataset.
        warnings: What else had to be changed, in sentences.
        is_one_file: Whether what is changed is a single file, which can be written alone.
    """

    root: StoredPath
    changed: Mapping[str, Content]
    others: Sequence[str]
    unknown: Sequence[str] = ()
    warnings: Sequence[str] = ()
    is_one_file: bool = False


Revise = Callable[[Mapping[str, str | None]], Revision]
"""Changes the classes of samples, by their ids; None takes the sample out."""


@dataclass(frozen=True)
class Scenes:
    """The whole images of a dataset whose samples are objects in boxes.

    Attributes:
        names: Name of each image.
        openers: Function that opens each.
        frames: Width and height of each that the sides of its boxes go by: (1, 1) for shares of it,
            None for its pixels.
        rows: Place of the image of each box. Shape (boxes,).
        sides: Left, top, right and bottom of each. Shape (boxes, 4).
        max_pixels: Maximum number of pixels of an image.
        upright: Whether the sides are of the upright image, although its frame may be that of the
            image as it is stored.
    """

    names: Sequence[str]
    openers: Sequence[ImageOpener]
    frames: Sequence[tuple[float, float] | None]
    rows: NDArray[np.int64]
    sides: NDArray[np.float64]
    max_pixels: int
    upright: Sequence[bool]


@dataclass(frozen=True)
class Dataset:
    """Samples in a fixed order, cut into shards of equal size; opened by `open_dataset`.

    Attributes:
        labels: Class indices, int32. Shape (samples,).
        fingerprint: Hex SHA-256 that changes with the ids, labels or sizes of the samples.
        shard_size: Number of samples per shard; the last shard may hold fewer.
        open_images: Function that yields the openers of the samples at ascending positions.
        skipped: Entries of the dataset that cannot be samples: without a label, or without a class
            folder. They are not part of the fingerprint, and no limit applies to them.
        warnings: Warnings about skipped entries and guessed columns, one sentence each.
        modality: `image`, or `text` where an opener opens a text as UTF-8.
        containers: Digest of the paths, sizes and times of local files that hold many samples each;
            None where there are none. It is not part of the fingerprint, because times differ from
            one machine to the next.
        revise: Function that gives the dataset in its own format with other labels; None where a
            list or class folders are written instead.
        scenes: The whole images where the samples are objects in boxes, without any limit; None
            where they are not.
        format: How it is read, a key of DATASETS; None for images of a program.
    """

    location: str
    class_names: tuple[str, ...]
    sample_ids: Sequence[str]
    labels: NDArray[np.int32]
    fingerprint: str
    shard_size: int
    open_images: Callable[[Sequence[int]], Iterator[ImageOpener]]
    skipped: Sequence[Skipped] = ()
    warnings: tuple[str, ...] = ()
    modality: Literal["image", "text"] = "image"
    containers: str | None = None
    revise: Revise | None = None
    scenes: Scenes | None = None
    format: str | None = None

    @property
    def boxes(self) -> bool:
        """Whether the samples are boxes of objects in images."""
        return self.scenes is not None

    @property
    def noun(self) -> Noun:
        """What a sample is in a word."""
        return "object" if self.boxes else self.modality

    @property
    def has_labels(self) -> bool:
        """Whether the samples have labels."""
        return has_labels(self.class_names)

    @property
    def num_shards(self) -> int:
        """Number of shards, including a smaller last one."""
        return -(-len(self.labels) // self.shard_size)

    def shard_positions(self, shard: int) -> range:
        """Positions of a shard's samples in the dataset's order."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, len(self.labels)))

    def read_shard(self, shard: int) -> Iterator[Sample]:
        """The samples of one shard, in order; an image is read when its `open` is called."""
        positions = self.shard_positions(shard)
        for position, opener in zip(positions, self.open_images(positions), strict=True):
            file = opener.path if isinstance(opener, FileOpener) else None
            yield Sample(self.sample_ids[position], int(self.labels[position]), opener, file)
