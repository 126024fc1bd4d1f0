"""Joins columns that a program holds to scores, by the ids of the samples."""

import pyarrow as pa

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.wording import did_you_mean
from difficulty_service.interface.arrays import to_column
from difficulty_service.interface.tables import Frame, is_pandas, to_table
from difficulty_service.reports.joined_tables import describe_unmatched
from difficulty_service.scores.compared_values import match_ids

KEY = "sample_id"
"""Name of the column of ids where none is named."""

JOINED = "the joined table"
SUFFIX = "_joined"
"""End of the name of a joined column that the scores have, too."""


def join_columns(table: pa.Table, frame: Frame, on: str | None) -> tuple[pa.Table, list[str]]:
    """A table of scores with further columns, and sentences about what does not match.

    Raises:
        DatasetError: The columns cannot be read, or none of them holds the ids.
        AuditError: An id occurs more than once, or none of them is of a sample.
    """
    keys, columns = _read(frame, on)
    rows = match_ids(table[KEY], keys, on or KEY)
    notes = describe_unmatched(JOINED, rows, keys)
    for name in columns.column_names:
        new = name
        while new in table.column_names:
            new += SUFFIX
        if new != name:
            notes.append(f"{JOINED}: its column {name} is called {new}, as the scores have one")
        table = table.append_column(new, columns[name].take(rows))
    return table, notes


def _read(frame: Frame, on: str | None) -> tuple[pa.ChunkedArray, pa.Table]:
    """The ids of a table and its other columns."""
    table = to_table(frame, "the table to join", "frame")
    key = on or KEY
    if key in table.column_names:
        return table[key], table.drop_columns(key)
    if is_pandas(frame, "DataFrame"):
        index = frame.index  # type: ignore[union-attr] # of pandas, which ships no types
        if index.nlevels == 1 and on in (None, index.name):
            others = [name for name in table.column_names if name != index.name]
            return to_column(index.to_series(), "on"), table.select(others)
    names = ", ".join(table.column_names)
    raise DatasetError(
        f"{JOINED} has no column {key!r}: {did_you_mean(key, table.column_names)}its columns are "
        f"{names}",
        *(() if on else ("name the one with the sample ids as ", Setting("on"))),
        parameter="on",
    )
