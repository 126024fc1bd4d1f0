"""Files of what scores are judged by, read as one table."""

from collections.abc import Sequence

import pyarrow as pa

from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.table_files import (
    TABLE_EXTENSIONS,
    open_table_file,
)
from difficulty_service.datasets.table_files import (
    read_columns as read_columns_of_file,
)
from difficulty_service.errors import AuditError


def read_columns(
    pattern: str, columns: Sequence[str], *, text_columns: Sequence[str] = ()
) -> pa.Table:
    """Some columns of Parquet, CSV or JSON Lines files, one below the other, in order of paths.

    Args:
        pattern: A file, a folder or a glob, local or as a URI.
        columns: What to read; of a Parquet file nothing else is.
        text_columns: Columns of CSV files that are text even where they look like numbers, so
            that an id keeps its leading zeros.

    Raises:
        AuditError: No file is of a known format, or the files hold different types.
        DatasetError: No file is there, one is unreadable, or one lacks a column.
    """
    files = [
        file for file in find_files(pattern) if file.place.name.lower().endswith(TABLE_EXTENSIONS)
    ]
    if not files:
        raise AuditError(
            f"{pattern!r} is no table; the names of tables end in {', '.join(TABLE_EXTENSIONS)}"
        )
    wanted = list(dict.fromkeys(columns))
    tables = [
        read_columns_of_file(open_table_file(file, file.place.name, tuple(text_columns)), wanted)
        for file in files
    ]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise AuditError(f"the files of {pattern!r} hold different types: {error}") from error
