"""Checks uploads in processes of their own, each within some seconds.

A damaged Parquet file can end the process that reads its footer: the reader of Arrow aborts where
some fields of the footer contradict each other. That must not be the process of the web server. Of
a tar or zip with millions of members, the headers may take minutes to read.
"""

import struct
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from api.http.problems import unreadable
from difficulty_service.base.apart import Apart, ProcessEnded, TookTooLong
from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.archive import read_archive
from difficulty_service.datasets.storage import StoredFile, resolve
from difficulty_service.datasets.table_columns import holds_bytes
from difficulty_service.datasets.table_files import read_pages
from difficulty_service.datasets.tar_files import TAR_ERRORS, open_tar, read_headers

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 1 << 27
MAX_ROWS = 20_000_000
MAX_PAGES = 2_000_000
EXTENSION_NAME = b"ARROW:extension:name"
SAFE_EXTENSION = b"arrow."
PICKLED_EXTENSION = b"arrow.py_extension_type"


def find_fault(path: Path, format_name: str) -> str | None:
    """Why an upload is damaged, of another format, or not safe to read; None where it is neither.

    Only its index is read. The reason names no folders of this server.
    """
    try:
        if format_name == "parquet":
            _check_parquet(path)
        elif format_name == "zip":
            read_archive(StoredFile(resolve(str(path)), path.stat().st_size))
        else:
            _check_tar(path)
    except (DatasetError, ValueError) as error:
        problem = error.problem if isinstance(error, DatasetError) else str(error)
        return problem.replace(str(path.parent) + "/", "").replace(path.name, "the upload")
    return None


def _check_tar(path: Path) -> None:
    """Checks a tar of class folders, or of samples with labels beside them."""
    try:
        with open_tar(resolve(str(path))) as archive:
            members = sum(header.is_file for header in read_headers(archive))
    except TAR_ERRORS as error:
        raise DatasetError(f"it is damaged, truncated or compressed: {error}") from error
    if not members:
        raise DatasetError("it contains no file")


def _check_parquet(path: Path) -> None:
    schema = check_parquet_index(path)
    if not any(holds_bytes(field.type) for field in schema):
        raise DatasetError(
            f"none of the columns {schema.names[:20]} holds images as encoded bytes",
            "store the files of the images in a binary column; paths mean nothing here",
        )


def check_parquet_index(path: Path) -> pa.Schema:
    """The columns of a Parquet file whose index is safe to read.

    Raises:
        DatasetError: It is not; the problem names no folders of this server.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        end = file.read(8)
    if len(end) < len(end[:4]) + len(MAGIC) or end[4:] != MAGIC:
        raise DatasetError("it does not end as Parquet does")
    (footer,) = struct.unpack("<I", end[:4])
    if footer > MAX_FOOTER_BYTES:
        raise DatasetError(f"its footer claims to have {footer:,} bytes")
    try:
        # Extension types are not instantiated: some run code from the file.
        with pq.ParquetFile(path, arrow_extensions_enabled=False) as parquet:
            schema, metadata = parquet.schema_arrow, parquet.metadata
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(str(error)) from error
    _check_pages(path, metadata)
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if sum(groups) != metadata.num_rows or min(groups, default=0) < 0:
        raise DatasetError("its row groups do not add up to its rows")
    if metadata.num_rows > MAX_ROWS:
        raise DatasetError(f"it has {metadata.num_rows:,} rows, the maximum is {MAX_ROWS:,}")
    for field in schema:
        _refuse_extension_types(field)
    return schema


def _check_pages(path: Path, metadata: pq.FileMetaData) -> None:
    """Refuses pages that unpack to gigabytes, by the headers from which a reader takes the size."""
    pages = 0
    with pa.OSFile(str(path)) as file:
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                pages += sum(1 for _ in islice(read_pages(file, column), MAX_PAGES + 1 - pages))
                if pages > MAX_PAGES:
                    raise DatasetError(f"it has more than {MAX_PAGES:,} pages")


def _refuse_extension_types(field: pa.Field) -> None:
    name = (field.metadata or {}).get(EXTENSION_NAME)
    if isinstance(field.type, pa.BaseExtensionType):
        name = field.type.extension_name.encode()
    if name is not None and (name == PICKLED_EXTENSION or not name.startswith(SAFE_EXTENSION)):
        raise DatasetError(
            f"the column {field.name!r} has the extension type {name.decode(errors='replace')!r}",
            "store it as plain values",
        )
    for index in range(field.type.num_fields if pa.types.is_nested(field.type) else 0):
        _refuse_extension_types(field.type.field(index))


NUMBER = 2  # of processes, each of which checks one file at a time: none is taken for another
ENDED = "reading it ends the process that does"


class UploadChecks:
    """Checks uploads, each within some seconds, in processes that start when they are needed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._apart = Apart(_checker, processes=NUMBER)

    def check(self, path: Path, format_name: str) -> None:
        """Checks that an upload has the declared format and is safe to read, by its index alone."""
        log = structlog.get_logger().bind(upload=path.stem)
        try:
            fault = self._apart.call_within(self._seconds, path, format_name)
        except TookTooLong:
            log.warning("upload-check-ended", reason=f"it took longer than {self._seconds:g} s")
            raise unreadable(
                f"checking this {format_name} file took longer than {self._seconds:g} s",
                "send it as several smaller uploads, or have the operator raise "
                "DIFFICULTY_UPLOAD_CHECK_SECONDS, then PUT no bytes at its end",
            ) from None
        except ProcessEnded:
            # No traceback: it would show where this process waited, not what ended the other.
            log.warning("upload-check-ended", reason=ENDED)
            fault = ENDED
        if fault is not None:
            raise unreadable(
                f"this is not a readable {format_name} file: {fault}",
                "delete the upload, recreate the file and send it as a new upload",
            )

    def close(self) -> None:
        """Ends the processes, once their uploads are checked."""
        self._apart.close()


def _checker() -> Callable[[Path, str], str | None]:
    return find_fault
