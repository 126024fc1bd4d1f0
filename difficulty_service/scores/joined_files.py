"""The files whose columns are joined to scores, as one table."""

from collections.abc import Sequence

import pyarrow as pa

from difficulty_service.base.errors import AuditError
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.sample import TableLimits
from difficulty_service.datasets.storage import Boundary
from difficulty_service.datasets.table_files import TableFile, open_table_file, table_endings
from difficulty_service.datasets.table_files import read_columns as read_columns_of_file


def open_tables(
    pattern: str,
    text_columns: Sequence[str] = (),
    limits: TableLimits | None = None,
    boundary: Boundary | None = None,
) -> Sequence[TableFile]:
    """Opens tables, in order of their paths.

    Of those that are not Parquet, `text_columns` are read as text even if they look like numbers,
    so that an id keeps its leading zeros. `limits` and `boundary` are for tables of people who are
    not trusted.
    """
    endings = table_endings(pattern, boundary)
    found = find_files(pattern, boundary)
    files = [file for file in found if file.place.name.lower().endswith(endings)]
    if not files:
        raise AuditError(
            f"{pattern!r} is not a table",
            f"the names of tables end in {', '.join(endings)}",
        )
    return [
        open_table_file(file, file.place.name, tuple(text_columns), limits=limits) for file in files
    ]


def read_columns(
    pattern: str, columns: Sequence[str], *, text_columns: Sequence[str] = ()
) -> pa.Table:
    """Concatenates some columns of files; arguments as for `open_tables`."""
    return concatenate(pattern, open_tables(pattern, text_columns), columns)


def concatenate(pattern: str, files: Sequence[TableFile], columns: Sequence[str]) -> pa.Table:
    """Concatenates some columns of the files that a pattern names."""
    names = list(dict.fromkeys(columns))
    try:
        return pa.concat_tables(
            [read_columns_of_file(file, names) for file in files], promote_options="permissive"
        )
    except pa.ArrowException as error:
        raise AuditError(f"the files of {pattern!r} hold different types: {error}") from error
