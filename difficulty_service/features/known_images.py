"""Index of images whose features are on disk, by content and by the stamp of their file.

An image is recognised by its content. A file that still has the stamp that it had when it was read
need not be read again for that. Random crops depend on the id of a sample, so with augmentation the
id has to be the same as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.files import first_64_bits, with_sample_id

KEY = np.dtype("<u8")


@dataclass(frozen=True)
class ImageList:
    """Images that an earlier run has read.

    Attributes:
        contents: Digests of the encoded images, uint8. Shape (images, 32).
        stamps: Stamps of their files, 0 for images that are not files. Shape (images,).
        sample_ids: Ids of the samples; None where they do not matter.
    """

    contents: NDArray[np.uint8]
    stamps: NDArray[np.uint64]
    sample_ids: Sequence[str] | None = None

    def content_keys(self) -> NDArray[np.uint64]:
        """64 bits of each content. Shape (images,)."""
        return _keys(self.contents, self.sample_ids)

    def stamp_keys(self) -> NDArray[np.uint64]:
        """64 bits of each stamp; without meaning where there is none. Shape (images,)."""
        return _keys(self.stamps.astype(KEY).view(np.uint8).reshape(-1, 8), self.sample_ids)


@dataclass(frozen=True)
class SortedKeys:
    """Rows by 64-bit keys, which ascend. Shape (keys,) each."""

    keys: NDArray[np.uint64]
    rows: NDArray[np.int64]

    def find(self, key: int) -> int | None:
        """The first row with a key; None if there is none."""
        place = int(self.keys.searchsorted(KEY.type(key)))
        found = place < len(self.keys) and int(self.keys[place]) == key
        return int(self.rows[place]) if found else None


@dataclass(frozen=True)
class KnownImages:
    """Images that an earlier run has read; takes 64 bytes of memory for each.

    The rows are numbered from 0: first the images with features, then the bad ones.

    Attributes:
        contents: Digests of the encoded images, uint8. Shape (images, 32).
        reasons: Reason why each of the bad images could not be read.
        ids_matter: Whether the sample id has to be the same.
    """

    contents: NDArray[np.uint8]
    by_content: SortedKeys
    by_stamp: SortedKeys
    reasons: Sequence[str]
    ids_matter: bool

    def content(self, row: int) -> bytes:
        """Digest of the encoded image of a row."""
        return self.contents[row].tobytes()

    def reason(self, row: int) -> str | None:
        """Reason why the image of a row could not be read; None if it has features."""
        first_bad = len(self.contents) - len(self.reasons)
        return None if row < first_bad else self.reasons[row - first_bad]

    def find_stamp(self, stamp: int | None, sample_id: str) -> int | None:
        """The row of a file that has not changed; None if it is new, changed or not a file."""
        if stamp is None:
            return None
        return self.by_stamp.find(self._key(stamp.to_bytes(8, "little"), sample_id))

    def find_content(self, content: bytes, sample_id: str) -> int | None:
        """The row of an image with the same content; None if it is new."""
        row = self.by_content.find(self._key(content, sample_id))
        # Two images with the same 64 bits can be made, two with the same 256 bits cannot.
        return row if row is not None and self.content(row) == content else None

    def _key(self, digest: bytes, sample_id: str) -> int:
        return first_64_bits(with_sample_id(digest, sample_id) if self.ids_matter else digest)


def index_images(images: ImageList, reasons: Sequence[str]) -> KnownImages:
    """An index of images: first those with features, then the bad ones with their reasons."""
    files = np.flatnonzero(images.stamps)
    return KnownImages(
        images.contents,
        _sorted(images.content_keys(), np.arange(len(images.contents))),
        _sorted(images.stamp_keys()[files], files),
        reasons,
        images.sample_ids is not None,
    )


def join_images(lists: Sequence[ImageList]) -> ImageList:
    """The images of several lists, at least one, in order; all or none of them with ids."""
    ids = [each.sample_ids for each in lists if each.sample_ids is not None]
    return ImageList(
        np.concatenate([each.contents for each in lists]),
        np.concatenate([each.stamps for each in lists]),
        list(chain.from_iterable(ids)) if ids else None,
    )


def _sorted(keys: NDArray[np.uint64], rows: NDArray[np.int64]) -> SortedKeys:
    order = np.argsort(keys, kind="stable")
    return SortedKeys(keys[order], rows[order])


def _keys(digests: NDArray[np.uint8], sample_ids: Sequence[str] | None) -> NDArray[np.uint64]:
    """64 bits of each digest, or of each digest together with the id. Shape (digests,)."""
    if sample_ids is None:
        return np.ascontiguousarray(digests[:, :8]).view(KEY).ravel()
    pairs = zip(digests, sample_ids, strict=True)
    numbers = [first_64_bits(with_sample_id(digest.tobytes(), name)) for digest, name in pairs]
    return np.array(numbers, dtype=KEY)
