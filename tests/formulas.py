"""Text that spreadsheets run as formulas, and a look for it in a CSV file."""

import csv
import io

FORMULAS = (
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    " =1+1",
    "\u00a0=1+1",
    "\u3000=1+1",
    "\x01=1+1",
    "\ufeff=1+1",
    '"=1+1',
    "'=1+1",
    "'' =1+1",
    "\tcat",
    "\rcat",
    "\uff1d1+1",
    "\uff0b1",
    "\uff0d1",
    "\uff20A1",
)
"""Ids and names that some spreadsheet runs, or that would be confused with one that is guarded."""

BLANKS = "\x01 \t\r\n\u00a0\u3000\ufeff\"'"


def cells_that_run(text: str, delimiter: str = ",") -> list[str]:
    """Cells of a CSV file that a spreadsheet might run; numbers are none."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return [cell for row in rows for cell in row if _may_run(cell)]


def _may_run(cell: str) -> bool:
    if cell.startswith("'"):  # which makes it text in every spreadsheet
        return False
    try:
        float(cell)
    except ValueError:
        begin = cell.lstrip(BLANKS)[:1]
        return cell[:1] in {"\t", "\r", "\n"} or begin in set("=+-@\uff1d\uff0b\uff0d\uff20") - {""}
    return cell[:1] in {"\t", "\r", "\n"}
