"""Checksums of blocks of rows of a page of features, which are checked as the rows are read.

A checksum of the whole page would have to read it twice, or all of it for a few rows.
"""

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from difficulty_service.errors import FeatureStoreError

BLOCK_BYTES, MOST_ROWS = 1 << 20, 1 << 10
DIGEST_BYTES = 8
REMEDY = "delete it and run `difficulty extract` again"


@dataclass(frozen=True)
class PageBlocks:
    """The blocks of a page.

    Attributes:
        rows: Number of rows of each block but the last.
        digests: XXH3 of 64 bits of each block.
    """

    rows: int
    digests: tuple[int, ...]
    _verified: set[int] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, page: NDArray[np.float32]) -> Self:
        """The blocks of a page of features. Shape (rows, dim)."""
        # A power of two, because readers take some thousand rows, also a power of two, at a time.
        fitting = max(1, min(MOST_ROWS, BLOCK_BYTES // max(1, page.itemsize * page.shape[1])))
        rows = 1 << (fitting.bit_length() - 1)
        return cls(
            rows,
            tuple(
                xxhash.xxh3_64_intdigest(page[start : start + rows].data.cast("B"))
                for start in range(0, len(page), rows)
            ),
        )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `to_text`."""
        rows, digests = text.split(":")
        values = np.frombuffer(base64.b64decode(digests), "<u8")
        return cls(int(rows), tuple(values.tolist()))

    def to_text(self) -> str:
        """The blocks as text for the metadata of a file."""
        digests = base64.b64encode(np.array(self.digests, "<u8").tobytes()).decode()
        return f"{self.rows}:{digests}"

    def split(self, rows: range) -> Iterator[tuple[int, range]]:
        """The blocks that rows lie in, and which of the rows each has."""
        for block in range(rows.start // self.rows, -(-rows.stop // self.rows)):
            first = block * self.rows
            yield block, range(max(rows.start, first), min(rows.stop, first + self.rows))

    def rows_of(self, block: int, num_rows: int) -> range:
        """The rows of a block of a page."""
        return range(block * self.rows, min((block + 1) * self.rows, num_rows))

    def is_verified(self, block: int) -> bool:
        """Whether `verify` has been called with the block before."""
        return block in self._verified

    def verify(self, path: Path, block: int, data: memoryview) -> None:
        """Raises FeatureStoreError where the bytes of a whole block are not those written."""
        if xxhash.xxh3_64_intdigest(data) != self.digests[block]:
            raise FeatureStoreError(
                f"{path} is damaged (the checksum of its features does not match)", REMEDY
            )
        self._verified.add(block)


@dataclass(frozen=True)
class Page:
    """A page of features in a file.

    Attributes:
        path: The file.
        begin: Position of the features in the file, in bytes.
        num_rows: Number of rows.
        row_bytes: Bytes of a row.
        blocks: Checksums; None where the file has none.
    """

    path: Path
    begin: int
    num_rows: int
    row_bytes: int
    blocks: PageBlocks | None

    def read(self, rows: range, out: NDArray[np.uint8]) -> None:
        """Reads rows, and checks the blocks that they lie in.

        Args:
            rows: Rows to read.
            out: Memory to read into. Shape (rows, bytes of a row).

        Raises:
            FeatureStoreError: The file is too short, or a checksum does not match.
        """
        # Faster than mapping the file: the kernel copies a page in less time than it maps one.
        with self.path.open("rb", buffering=0) as file:
            if self.blocks is None:
                self._read(file, rows, out)
                return
            for block, inside in self.blocks.split(rows):
                target = out[inside.start - rows.start : inside.stop - rows.start]
                self._read_of_block(file, self.blocks, block, inside, target)

    def _read_of_block(
        self,
        file: BinaryIO,
        blocks: PageBlocks,
        block: int,
        rows: range,
        out: NDArray[np.uint8],
    ) -> None:
        whole = blocks.rows_of(block, self.num_rows)
        if rows != whole and blocks.is_verified(block):
            self._read(file, rows, out)
            return
        data = out if rows == whole else np.empty((len(whole), self.row_bytes), np.uint8)
        self._read(file, whole, data)
        blocks.verify(self.path, block, data.data)
        if data is not out:
            out[:] = data[rows.start - whole.start : rows.stop - whole.start]

    def _read(self, file: BinaryIO, rows: range, out: NDArray[np.uint8]) -> None:
        file.seek(self.begin + rows.start * self.row_bytes, os.SEEK_SET)
        unread = out.reshape(-1).data
        while unread and (num_bytes := file.readinto(unread)):  # type: ignore[attr-defined]
            unread = unread[num_bytes:]
        if unread:
            raise FeatureStoreError(f"{self.path} ends within its features", REMEDY)
