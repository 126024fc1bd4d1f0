"""Cells of CSV files that no spreadsheet runs, for everything here that writes such files.

A spreadsheet that opens a CSV file takes a cell for a formula by its first character, whether or
not the file has the cell in quotes, and a formula may send the other cells elsewhere or start a
program. Text that could be one gets a `'` in front, which makes it text there. See OWASP's page on
CSV injection and CWE-1236.
"""

import re
from collections.abc import Iterable
from typing import TextIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

# In a notation that Python, JavaScript and Arrow's regular expressions share.
_BLANKS = "\\x00-\\x20\\x7f-\\xa0\u1680\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"

FORMULA = f"^['\"{_BLANKS}]*[=+@\uff1d\uff0b\uff0d\uff20\\t\\r\\n\\-]"
"""Text that may be run: a sign that formulas begin with, also in full width, or the end of a cell.

Blanks, control characters and quotes may be in front of it, as programs drop them; among them `'`,
so that what is guarded counts as well and the guard can be removed without a doubt.
"""

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)

_QUOTED = re.compile('[,"\r\n]')
_FORMULA = re.compile(FORMULA)


def guarded(text: str) -> str:
    """The text with a `'` in front where a spreadsheet might run it."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(cell: str) -> str:
    """The text of which `guarded` made this cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def guard_text(table: pa.Table) -> pa.Table:
    """The table with the names of its columns and all text `guarded`; numbers stay as they are."""
    columns = [
        _guarded_column(column) if _is_text(column.type) else column for column in table.columns
    ]
    fields = [field.with_name(guarded(field.name)) for field in table.schema]
    return pa.table(columns, pa.schema(fields))


def unguard_text(table: pa.Table) -> pa.Table:
    """The table of which `guard_text` made this one."""
    columns = [
        _unguarded_column(column) if _is_text(column.type) else column for column in table.columns
    ]
    fields = [field.with_name(unguarded(field.name)) for field in table.schema]
    return pa.table(columns, pa.schema(fields))


def unguard_ids(cells: pa.StringArray, known: pa.StringArray) -> pa.StringArray:
    """Ids of a table that anybody may have written, to look up among those that are known.

    Cells are taken for `guarded` ones where more of them are known ids without the guard: in a
    file of another program, and in formats other than CSV, a `'` belongs to the id.
    """
    if not pc.any(pc.starts_with(cells, "'")).as_py():
        return cells
    ids = _unguarded_column(cells)
    return ids if _number_in(ids, known) > _number_in(cells, known) else cells


def write_rows(
    file: TextIO, header: Iterable[str], rows: Iterable[Iterable[object]], *, newline: str = "\r\n"
) -> None:
    """Writes a header and rows as CSV to a file opened with `newline=""`; text is `guarded`.

    The `csv` of Python leaves a carriage return without quotes where lines do not end with it, and
    what follows would be a cell of its own.
    """
    file.writelines(",".join(map(_cell_of, row)) + newline for row in (header, *rows))


def _cell_of(value: object) -> str:
    text = guarded(value) if isinstance(value, str) else "" if value is None else str(value)
    return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text


def _number_in(ids: pa.StringArray, known: pa.StringArray) -> int:
    """How many of some ids are known; missing ones are not."""
    return int(pc.sum(pc.is_in(ids, value_set=known, skip_nulls=True)).as_py() or 0)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _guarded_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    quote, nothing = pa.scalar("'", column.type), pa.scalar("", column.type)
    quoted = pc.binary_join_element_wise(quote, column, nothing)
    return pc.if_else(pc.match_substring_regex(column, FORMULA), quoted, column)


def _unguarded_column(column: Column) -> Column:
    is_guarded = pc.and_(pc.starts_with(column, "'"), pc.match_substring_regex(column, FORMULA))
    return pc.if_else(is_guarded, pc.utf8_slice_codeunits(column, 1), column)
