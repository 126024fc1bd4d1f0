"""Features mapped from a file; blocks of rows are checked against their checksums as they are read.

A checksum of the whole file would have to read all of it for a few rows, or for its list of bad
images.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import xxhash
from torch import Tensor

from difficulty_service.errors import FeatureStoreError

BLOCKS_KEY = b"features_blocks"
"""Key of the metadata with `checksums`."""

BLOCK_BYTES, MOST_ROWS = 1 << 20, 1 << 10
REMEDY = "delete it and run `difficulty extract` again"


@dataclass(frozen=True)
class MappedFeatures:
    """The features of a file from some row on.

    Attributes:
        path: The file.
        num_bytes: Size of the file when it was opened.
        features: All features of the file, on mapped memory. Shape (rows, dim).
        first: Row of the file from which rows are counted.
        block_rows: Number of rows of each block of the file but the last.
        digests: Checksum of each block; none where another program wrote the file.
    """

    path: Path
    num_bytes: int
    features: Tensor
    first: int
    block_rows: int
    digests: Sequence[int]
    _verified: set[int] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, path: Path, features: Tensor, blocks: str | None, first: int) -> Self:
        """Features of a file with the text of `checksums`; None where it has none."""
        block_rows, digests = json.loads(blocks) if blocks else (1, [])
        return cls(path, path.stat().st_size, features, first, block_rows, digests)

    def __call__(self, rows: slice) -> Tensor:
        """Some rows, on mapped memory, which must not be written to; may be called by any thread.

        Raises:
            FeatureStoreError: The file has become too short, or a checksum does not match.
        """
        # The system ends a process that reads mapped memory beyond the end of its file.
        with suppress(FileNotFoundError):
            if self.path.stat().st_size < self.num_bytes:
                raise FeatureStoreError(f"{self.path} ends within its features", REMEDY)
        start, stop = self.first + rows.start, self.first + rows.stop
        last = min(-(-stop // self.block_rows), len(self.digests))
        for block in range(start // self.block_rows, last):
            if block not in self._verified:
                self._verify(block)
        return self.features[start:stop]

    def _verify(self, block: int) -> None:
        if _digest(self.features, block, self.block_rows) != self.digests[block]:
            raise FeatureStoreError(
                f"{self.path} is damaged (the checksum of its features does not match)", REMEDY
            )
        self._verified.add(block)


def checksums(features: Tensor) -> str:
    """The blocks of float32 features, as text for the metadata. Shape (rows, dim)."""
    # A power of two, because readers take some thousand rows, also a power of two, at a time.
    fitting = max(1, min(MOST_ROWS, BLOCK_BYTES // max(1, features[:1].nbytes)))
    rows = 1 << (fitting.bit_length() - 1)
    blocks = range(-(-len(features) // rows))
    return json.dumps([rows, [_digest(features, block, rows) for block in blocks]])


def _digest(features: Tensor, block: int, rows: int) -> int:
    return xxhash.xxh3_64_intdigest(features[block * rows : (block + 1) * rows].numpy().data)
