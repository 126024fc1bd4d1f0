"""The file `errors.parquet`: what of a dataset has no features, and why."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from difficulty_service.errors import FeatureStoreError
from difficulty_service.feature_store.bad_image import BadImage
from difficulty_service.files.arrow_columns import strings_to_arrow
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_parquet import UNREADABLE, read_parquet, write_parquet

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
