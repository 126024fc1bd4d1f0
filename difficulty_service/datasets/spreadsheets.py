"""Reads the first sheet of a workbook, `.xlsx`, as a table."""

from collections.abc import Container, Sequence
from datetime import date, datetime, time, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.extras import needs_extra
from difficulty_service.base.wording import count_of
from difficulty_service.datasets.storage import StoredPath, open_file

SPREADSHEET_EXTENSIONS = (".xlsx",)

_Cell = int | float | str | bool | time | date | datetime | timedelta


@needs_extra("reading .xlsx", "xlsx", or_else=", or save the sheet as CSV")
def read_spreadsheet(
    place: StoredPath, name: str, text_columns: Container[str]
) -> tuple[pa.Table, str | None]:
    """All rows of the first visible sheet, and the note of a `TableFile` where there are others.

    The first row has the names of the columns. Columns of numbers are integers where all are
    whole, `text_columns` are text.

    Raises:
        DatasetError: The file is no workbook, has no rows, or needs a password.
        MissingPackage: The reader of workbooks is not installed.
        OSError: The file cannot be opened.
    """
    from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

    try:
        with open_file(place) as file, CalamineWorkbook.from_filelike(file) as book:
            sheets = [
                sheet.name
                for sheet in book.sheets_metadata
                if sheet.typ == SheetTypeEnum.WorkSheet
                and sheet.visible == SheetVisibleEnum.Visible
            ]
            rows = book.get_sheet_by_name(sheets[0]).to_python() if sheets else []
    except CalamineError as error:
        raise DatasetError(
            f"{name!r} cannot be read as .xlsx: {error}", "save it again, or as CSV"
        ) from error
    if not rows:
        raise DatasetError(f"the first sheet of {name!r} is empty", "write a row for each sample")
    names = [str(cell).strip() for cell in rows[0]]
    columns = [
        _column([row[place] for row in rows[1:]], is_text=name in text_columns)
        for place, name in enumerate(names)
    ]
    table, others = pa.table(columns, names), count_of(len(sheets) - 1, "other")
    note = f"is read from its sheet {sheets[0]!r}, and not from {others}"
    return table, note if len(sheets) > 1 else None


def _column(cells: Sequence[_Cell], *, is_text: bool) -> pa.Array:
    """The cells of a column; an empty one is null."""
    known = [None if cell == "" else cell for cell in cells]
    kinds = {type(cell) for cell in known if cell is not None}
    if is_text or not (kinds <= {bool} or kinds <= {int, float}):
        return pa.array([None if cell is None else _text(cell) for cell in known], pa.string())
    numbers = pa.array(known, pa.bool_() if kinds == {bool} else pa.float64())
    whole = kinds != {bool} and pc.all(pc.equal(numbers, pc.floor(numbers))).as_py() is not False
    return numbers.cast(pa.int64()) if whole else numbers


def _text(cell: _Cell) -> str:
    """A cell as it is shown: workbooks store 7 as 7.0."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
