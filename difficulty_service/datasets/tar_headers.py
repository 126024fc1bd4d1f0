"""Reads the headers of a tar with limits, because the archive may be malicious.

A header may claim a size that exhausts the memory, or a negative size that leads back to the same
header for ever; both raise an error here.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from difficulty_service.datasets.listing import as_text
from difficulty_service.datasets.storage import StoredPath, open_file

TAR_EXTENSIONS = (".tar", ".tar.gz", ".tgz")

TAR_ERRORS = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    OSError,
    ValueError,
    OverflowError,
    RecursionError,
)
"""Errors that reading a damaged, truncated or malicious archive raises."""

MAX_MEMBERS = 2_000_000
MAX_NAMES_LENGTH = 1 << 29
_MAX_NAME_LENGTH = 4096
_MAX_HEADER_BYTES = 1 << 18  # per member, with long names and extended attributes
_MAX_GLOBAL_FIELDS = 1000


@dataclass
class _BoundedReader:
    """A file from which at most `left` bytes may be read until `left` is reset."""

    file: BinaryIO
    left: int = _MAX_HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise tarfile.ReadError(f"a header of more than {_MAX_HEADER_BYTES:,} bytes")
        self.left -= size
        return self.file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


@contextmanager
def open_tar(place: StoredPath) -> Iterator[BinaryIO]:
    """Opens an archive as a decompressed file; seeking backward may be expensive."""
    with ExitStack() as stack:
        file = stack.enter_context(open_file(place))
        if not place.name.lower().endswith(".tar"):
            file = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file)))
        yield file


def read_headers(archive: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yields all headers in order; the caller may seek in the archive.

    Raises:
        tarfile.TarError: The archive is damaged, truncated or too large. The other TAR_ERRORS are
            possible as well.
    """
    reader = _BoundedReader(archive)
    with tarfile.open(fileobj=cast(BinaryIO, reader), mode="r:") as tar:
        last, count, length = -1, 0, 0
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # otherwise all headers would stay in memory
            count, length = count + 1, length + len(member.name)
            _check(tar, member, last)
            if count > MAX_MEMBERS or length > MAX_NAMES_LENGTH:
                raise tarfile.ReadError(f"more than {MAX_MEMBERS:,} members, or too long names")
            last = tar.offset
            yield member
            reader.left = _MAX_HEADER_BYTES
        # tarfile treats an unreadable header as the end; the real end is a block of zeros.
        archive.seek(tar.offset)
        if archive.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError(f"no end-of-archive mark at byte {tar.offset:,}")


def _check(tar: tarfile.TarFile, member: tarfile.TarInfo, last: int) -> None:
    if tar.offset <= last or member.size < 0:
        raise tarfile.ReadError(f"the header at byte {member.offset:,} leads backwards")
    if len(member.name) > _MAX_NAME_LENGTH:
        raise tarfile.ReadError(f"a name of {len(member.name):,} characters")
    if len(tar.pax_headers) > _MAX_GLOBAL_FIELDS:
        raise tarfile.ReadError(f"more than {_MAX_GLOBAL_FIELDS:,} global fields")


def why_unreadable(header: tarfile.TarInfo, max_bytes: int) -> str | None:
    """The reason why a member cannot be an image; None if it can."""
    if header.issym() or header.islnk():
        return f"a link to {as_text(header.linkname)!r} inside a tar, not an image"
    if not header.isreg() or header.issparse():
        return "not a regular file in the tar"
    if header.size > max_bytes:
        return f"{header.size:,} bytes, more than the {max_bytes:,} one image may have"
    return None
