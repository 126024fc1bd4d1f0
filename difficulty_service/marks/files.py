"""Files of marks: read from CSV, Parquet or the annotations of other tools, written as CSV."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.checksums import describe_change, is_changed, write_checksum_beside
from difficulty_service.base.csv_cells import unguarded, write_rows
from difficulty_service.base.errors import CleaningError
from difficulty_service.base.files import CONTENT_BYTES, replacing
from difficulty_service.base.tables import UNREADABLE, read_parquet
from difficulty_service.marks.annotations import (
    is_of_label_studio,
    read_annotations,
    read_label_studio_table,
)
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import (
    ID_COLUMN,
    LABEL_COLUMN,
    MARK_COLUMN,
    SCHEMA,
    MarkedSample,
    Marks,
)

DELIMITERS = (",", ";", "\t")
DIGEST = re.compile(f"[0-9a-fA-F]{{{2 * CONTENT_BYTES}}}")


def read_marks(path: Path, sample_ids: Collection[str]) -> Marks:
    """Reads marks from a CSV file, also one that a spreadsheet wrote, or from a Parquet file.

    What was annotated in Label Studio, CVAT or FiftyOne is read, too; see `read_annotations`.

    The columns are `sample_id`, `mark` and, for samples to be relabelled, `label`; there may be
    those of `SCHEMA`, and others are ignored. Fields of a CSV file are separated by commas,
    semicolons or tabs. A `'` that protects a cell from being read as a formula is removed,
    unless the id with it is known and the one without it is not.

    Raises:
        CleaningError: The file cannot be read, lacks a column, or has an unknown mark or a relabel
            without a label.
    """
    annotated = read_annotations(path)
    if annotated is not None:
        return annotated
    warnings: list[str] = []
    if path.suffix.lower() == ".parquet":
        return _marks_of_rows(str(path), _parquet_rows(path), warnings)

    def id_of(cell: str) -> str:
        text = unguarded(cell)
        return cell if cell in sample_ids and text not in sample_ids else text

    rows = _csv_rows(path, warnings)
    if rows and is_of_label_studio(rows[0][1]):
        return read_label_studio_table(path, (row for _, row in rows), warnings)
    return _marks_of_rows(str(path), rows, warnings, id_of, unguarded)


def marks_of_table(table: pa.Table) -> Marks:
    """Marks from a table with the columns of `read_marks`; errors as there."""
    return _marks_of_rows("the table of marks", _table_rows("the table of marks", table), [])


def _marks_of_rows(
    where: str,
    rows: Iterable[tuple[str, Mapping[str, str]]],
    warnings: list[str],
    id_of: Callable[[str], str] = str,
    text_of: Callable[[str], str] = str,
) -> Marks:
    """The marks of lines or rows, the cells of which are read by `id_of` and `text_of`."""
    samples: dict[str, MarkedSample] = {}
    repeated, unmarked = set(), 0
    for place, row in rows:
        cells = (row.get(name) or "" for name in SCHEMA.names)
        cell, mark, label, given, content, order, number = cells
        sample_id = id_of(cell)
        if not mark.strip():
            unmarked += 1
            continue
        if sample_id in samples:
            repeated.add(sample_id)
        marked = _parse_mark(f"{where}, {place}", sample_id, mark, text_of(label.strip()))
        samples[sample_id] = replace(
            marked,
            given_label=text_of(given) or None,
            content=content.strip().lower() if DIGEST.fullmatch(content.strip()) else None,
            order=text_of(order.strip()),
            round=int(number) if number.strip().isdecimal() else None,
        )
    if repeated:
        warnings.append(
            f"{len(repeated):,} samples are marked more than once in {where}; the last mark counts"
        )
    if unmarked:
        warnings.append(f"{unmarked:,} lines of {where} have no mark")
    return Marks(samples, tuple(warnings))


def _parse_mark(where: str, sample_id: str, text: str, label: str) -> MarkedSample:
    try:
        mark = Mark(text.strip().lower())
    except ValueError:
        raise CleaningError(
            f"{where}: the mark {text!r} is unknown",
            f"a mark is one of {', '.join(Mark)}, or empty",
            parameter="marks",
        ) from None
    if mark.kind.needs_class and not label:
        raise CleaningError(
            f"{where}: the mark is {mark}, but the column {LABEL_COLUMN} is empty",
            "write the name of the new class there",
            parameter="marks",
        )
    takes_class = mark.kind.needs_class or mark is Mark.MISPLACED
    return MarkedSample(sample_id, mark, (label or None) if takes_class else None)


def _csv_rows(path: Path, warnings: list[str]) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Each line with its place in the file; adds to the warnings."""
    text, encoding = _decode(path)
    if is_changed(path):
        warnings.append(describe_change(path))
    if encoding == "cp1252":
        warnings.append(f"{path} is not UTF-8; it is read as Windows-1252")
    # A spreadsheet may put the separator on a line of its own before the header.
    text = re.sub(r'\A"?sep=.?"?\r?\n', "", text, flags=re.IGNORECASE)
    header = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        if not is_of_label_studio(reader.fieldnames):
            _require_columns(str(path), reader.fieldnames)
        rows = [(f"line {reader.line_num}", row) for row in reader]
    except csv.Error as error:
        raise CleaningError(
            f"{path} cannot be read as CSV: {error}", "save it again", parameter="marks"
        ) from error
    for place, row in rows:
        if _holds_lines(row, delimiter):
            raise CleaningError(
                f"{path}: a quote that is open until {place} makes other lines part of a cell",
                "close the quote, or take a copy of the file",
                parameter="marks",
            )
    return rows


def _holds_lines(row: Mapping[str, object], delimiter: str) -> bool:
    """Whether a cell holds lines of marks, as behind a quote that is never closed."""
    return any(
        not {*Mark}.isdisjoint(line.split(delimiter))
        for cell in row.values()
        if isinstance(cell, str) and "\n" in cell
        for line in cell.splitlines()[1:]
    )


def _decode(path: Path) -> tuple[str, str]:
    """The text of a file and its encoding, chosen by its first bytes and by what can be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CleaningError(
            f"{path} cannot be read: {error.strerror or error}", parameter="marks"
        ) from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace"), "utf-16"
    try:
        return data.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace"), "cp1252"


def _parquet_rows(path: Path) -> Iterable[tuple[str, Mapping[str, str]]]:
    try:
        return _table_rows(str(path), read_parquet(path))
    except UNREADABLE as error:
        raise CleaningError(
            f"{path} cannot be read as a table of marks: {error}", parameter="marks"
        ) from error


def _table_rows(where: str, table: pa.Table) -> Iterable[tuple[str, Mapping[str, str]]]:
    _require_columns(where, table.column_names)
    names = [name for name in SCHEMA.names if name in table.column_names]
    texts = pa.table({name: table[name].cast(pa.string()) for name in names})
    return ((f"row {row}", cells) for row, cells in enumerate(texts.to_pylist(), 1))


def _require_columns(where: str, names: Sequence[str]) -> None:
    missing = [name for name in (ID_COLUMN, MARK_COLUMN) if name not in names]
    if missing:
        raise CleaningError(
            f"{where} has no column {missing[0]!r}; its columns are {', '.join(names) or 'none'}",
            f"marks are in columns {ID_COLUMN}, {MARK_COLUMN} and, to relabel, {LABEL_COLUMN}",
            parameter="marks",
        )


def write_marks(path: Path, marks: Iterable[MarkedSample]) -> None:
    """Writes marks as CSV, as `read_marks` reads it, and the checksum of the file beside it.

    The file appears whole or not at all.
    """
    with replacing(path) as temporary:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            write_rows(file, SCHEMA.names, map(_row_of, marks))
        write_checksum_beside(path, temporary)


def _row_of(marked: MarkedSample) -> Iterable[str]:
    return (str(getattr(marked, name) or "") for name in SCHEMA.names)
