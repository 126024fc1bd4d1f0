"""Marks that people give to samples: keep, relabel to a class, or drop; read from a file."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.tables import UNREADABLE, read_parquet

ID_COLUMN, MARK_COLUMN, LABEL_COLUMN = "sample_id", "mark", "label"

DELIMITERS = (",", ";", "\t")
FORMULA_STARTS = ("=", "+", "-", "@")


class Mark(StrEnum):
    """What to do with a sample."""

    KEEP = "keep"
    RELABEL = "relabel"
    DROP = "drop"


@dataclass(frozen=True)
class MarkedSample:
    """The mark of one sample."""

    mark: Mark
    label: str | None = None


@dataclass(frozen=True)
class Marks:
    """The marks of a file."""

    samples: Mapping[str, MarkedSample]
    warnings: tuple[str, ...]


def read_marks(path: Path, sample_ids: Collection[str]) -> Marks:
    """Reads marks from a CSV file, also one that a spreadsheet wrote, or from a Parquet file.

    The columns are `sample_id`, `mark` and, for samples to be relabelled, `label`; others are
    ignored. Fields of a CSV file are separated by commas, semicolons or tabs. A `'` that protects a
    cell from being read as a formula is removed unless it belongs to a known id.

    Raises:
        CleaningError: The file cannot be read, lacks a column, or has an unknown mark or a relabel
            without a label.
    """
    warnings: list[str] = []
    rows = _parquet_rows(path) if path.suffix.lower() == ".parquet" else _csv_rows(path, warnings)
    samples: dict[str, MarkedSample] = {}
    repeated, unmarked = set(), 0
    for place, row in rows:
        cell, mark, label = (row.get(name) or "" for name in (ID_COLUMN, MARK_COLUMN, LABEL_COLUMN))
        sample_id = cell if cell in sample_ids else _unprotected(cell)
        if not mark.strip():
            unmarked += 1
            continue
        if sample_id in samples:
            repeated.add(sample_id)
        samples[sample_id] = _parse_mark(f"{path}, {place}", mark, _unprotected(label.strip()))
    if repeated:
        warnings.append(
            f"{len(repeated):,} samples are marked more than once in {path}; the last mark counts"
        )
    if unmarked:
        warnings.append(f"{unmarked:,} lines of {path} have no mark")
    return Marks(samples, tuple(warnings))


def _parse_mark(where: str, text: str, label: str) -> MarkedSample:
    try:
        mark = Mark(text.strip().lower())
    except ValueError:
        raise CleaningError(
            f"{where}: the mark {text!r} is unknown",
            f"a mark is one of {', '.join(Mark)}, or empty",
            parameter="marks",
        ) from None
    if mark is Mark.RELABEL and not label:
        raise CleaningError(
            f"{where}: the mark is relabel, but the column {LABEL_COLUMN} is empty",
            "write the name of the new class there",
            parameter="marks",
        )
    return MarkedSample(mark, label if mark is Mark.RELABEL else None)


def _unprotected(cell: str) -> str:
    """A cell without the `'` that stops a spreadsheet from reading it as a formula."""
    return cell[1:] if cell[:1] == "'" and cell[1:].startswith(FORMULA_STARTS) else cell


def _csv_rows(path: Path, warnings: list[str]) -> Iterable[tuple[str, Mapping[str, str]]]:
    """Each line with its place in the file; adds to the warnings."""
    text, encoding = _decode(path)
    if encoding == "cp1252":
        warnings.append(f"{path} is not UTF-8; it is read as Windows-1252")
    # A spreadsheet may put the separator on a line of its own before the header.
    text = re.sub(r'\A"?sep=.?"?\r?\n', "", text, flags=re.IGNORECASE)
    header = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        _require_columns(path, reader.fieldnames)
        rows = [(f"line {reader.line_num}", row) for row in reader]
    except csv.Error as error:
        raise CleaningError(
            f"{path} cannot be read as CSV: {error}", "save it again", parameter="marks"
        ) from error
    return rows


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
        table = read_parquet(path)
        _require_columns(path, table.column_names)
        names = [
            name for name in (ID_COLUMN, MARK_COLUMN, LABEL_COLUMN) if name in table.schema.names
        ]
        texts = pa.table({name: table[name].cast(pa.string()) for name in names})
    except UNREADABLE as error:
        raise CleaningError(
            f"{path} cannot be read as a table of marks: {error}", parameter="marks"
        ) from error
    return ((f"row {row}", cells) for row, cells in enumerate(texts.to_pylist(), 1))


def _require_columns(path: Path, names: Sequence[str]) -> None:
    missing = [name for name in (ID_COLUMN, MARK_COLUMN) if name not in names]
    if missing:
        raise CleaningError(
            f"{path} has no column {missing[0]!r}; its columns are {', '.join(names) or 'none'}",
            f"marks are in columns {ID_COLUMN}, {MARK_COLUMN} and, to relabel, {LABEL_COLUMN}",
            parameter="marks",
        )
