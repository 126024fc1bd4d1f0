"""The file `errors.parquet`: what of a dataset has no features, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import UNREADABLE, read_parquet, strings_to_arrow, write_parquet


@dataclass(frozen=True)
class BadImage:
    """An image without features.

    Attributes:
        content: Digest of the encoded image; None where not all of it was read.
        stamp: Stamp of its file; None where it is not a file of its own.
    """

    sample_id: str
    reason: str
    content: bytes | None = None
    stamp: int | None = None


ERRORS_FILE = "errors.parquet"

ERRORS_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("sample_id", "reason")]
)


def errors_table(errors: Sequence[BadImage]) -> pa.Table:
    """Columns sample_id and reason of skipped entries and unreadable images."""
    ids, reasons = [error.sample_id for error in errors], [error.reason for error in errors]
    columns = [strings_to_arrow(ids), strings_to_arrow(reasons)]
    return pa.Table.from_arrays(columns, schema=ERRORS_SCHEMA)


def write_errors(folder: Path, errors: Sequence[BadImage]) -> Path:
    """Writes the file into the folder of a feature store; it appears whole or not at all."""
    path = folder / ERRORS_FILE
    with replacing(path) as temporary:
        write_parquet(temporary, errors_table(errors))
    return path


def read_errors(folder: Path) -> list[BadImage]:
    """The content of the file in the folder of a feature store; nothing where there is none.

    Raises:
        FeatureStoreError: The file is damaged.
    """
    path = folder / ERRORS_FILE
    if not path.exists():
        return []
    try:
        table = read_parquet(path, ERRORS_SCHEMA.names)
    except UNREADABLE as error:
        raise FeatureStoreError(f"{path} is damaged ({error})", "delete it") from error
    return [BadImage(**row) for row in table.to_pylist()]
