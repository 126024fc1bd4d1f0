"""Marks that people give to samples: keep, relabel to a class, or drop; kept in files.

A mark is about a sample and its content. Those of a dataset are remembered in a file beside its
scores, so that they hold when it is scored again, by another backbone or after files were moved.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, starmap
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.checksums import (
    checksum_file,
    describe_change,
    is_changed,
    write_checksum_beside,
)
from difficulty_service.base.csv_cells import unguarded, write_rows
from difficulty_service.base.errors import CleaningError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import UNREADABLE, read_parquet
from difficulty_service.base.wording import count_of, is_or_are, list_names
from difficulty_service.marks.annotations import GIVEN_LABEL, Annotated, read_annotations
from difficulty_service.marks.mark_kinds import Mark as Mark
from difficulty_service.marks.mark_kinds import count_kinds, kinds_for

ID_COLUMN, MARK_COLUMN, LABEL_COLUMN = "sample_id", "mark", "label"
COLUMNS = (ID_COLUMN, MARK_COLUMN, LABEL_COLUMN, GIVEN_LABEL, "content", "order", "round")

RANDOM = "random"
"""The order in which any sample may come next."""

DELIMITERS = (",", ";", "\t")
LISTED = 20
"""Number of sample ids that an error lists."""


@dataclass(frozen=True)
class MarkedSample:
    """The mark of one sample.

    Attributes:
        label: Class of a sample that is relabelled, or whose box is off and was relabelled before.
        given: Class that the dataset gave it when it was marked; None where that is not known.
        content: Digest of its content then; None where that is not known.
        order: Order in which samples were looked at: `random` where it was any; empty where that is
            not known, or several samples were marked at once.
        round: Number of the scores on which the decision was made, from 1; None where that is not
            known.
    """

    mark: Mark
    label: str | None = None
    given: str | None = None
    content: bytes | None = None
    order: str = ""
    round: int | None = None

    @property
    def number(self) -> int:
        """Number of its round, which is the first where it is not known."""
        return self.round or 1

    def after(self, earlier: "MarkedSample | None") -> "MarkedSample":
        """The mark of a sample that was shown with an earlier mark applied to it.

        Whoever keeps a sample that was relabelled has seen it with its new label.
        """
        if earlier is None:
            return self
        is_again = (self.mark, self.label) == (earlier.mark, earlier.label)
        if is_again or (self.mark is Mark.KEEP and earlier.mark is Mark.RELABEL):
            return replace(earlier, content=self.content)
        given = earlier.given or self.given
        if earlier.label is not None and self.mark is Mark.OFF:
            return replace(self, label=earlier.label, given=given)
        if earlier.label is not None and self.mark is Mark.KEEP:  # the box is not off after all
            return replace(self, mark=Mark.RELABEL, label=earlier.label, given=given)
        if self.mark is Mark.RELABEL and self.label == given:
            return replace(self, mark=Mark.KEEP, label=None, given=given)
        return replace(self, given=given)


@dataclass(frozen=True)
class Marks:
    """The marks of a file."""

    samples: Mapping[str, MarkedSample]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class MarkHistory:
    """The marks of a dataset.

    Attributes:
        earlier: Marks with which the samples were shown to whoever gave the later ones.
    """

    earlier: Marks
    later: Marks

    def __bool__(self) -> bool:
        return bool(self.earlier.samples or self.later.samples)

    @cached_property
    def next_round(self) -> int:
        """Number of the round of the later marks."""
        return 1 + max((mark.number for mark in self.earlier.samples.values()), default=0)

    def numbered(self, mark: MarkedSample) -> MarkedSample:
        """One of the later marks with the number of its round."""
        return mark if mark.round else replace(mark, round=self.next_round)

    @property
    def ids(self) -> Sequence[str]:
        """Ids of the samples of all marks."""
        return list(dict.fromkeys([*self.earlier.samples, *self.later.samples]))


NO_MARKS = Marks({}, ())


def read_marks(path: Path, sample_ids: Collection[str]) -> Marks:
    """Reads marks from a CSV file, also one that a spreadsheet wrote, or from a Parquet file.

    What was annotated in Label Studio, CVAT or FiftyOne is read, too; see `read_annotations`.

    The columns are `sample_id`, `mark` and, for samples to be relabelled, `label`; there may be
    `given_label` and `content`, and others are ignored. Fields of a CSV file are separated by
    commas, semicolons or tabs. A `'` that protects a cell from being read as a formula is removed,
    unless the id with it is known and the one without it is not.

    Raises:
        CleaningError: The file cannot be read, lacks a column, or has an unknown mark or a relabel
            without a label.
    """
    annotated = read_annotations(path)
    if annotated is not None:
        samples = {key: _mark_of(each) for key, each in annotated.samples.items()}
        return Marks(samples, annotated.warnings(path))
    warnings: list[str] = []
    if path.suffix.lower() == ".parquet":
        return _marks_of_rows(str(path), _parquet_rows(path), warnings)

    def id_of(cell: str) -> str:
        text = unguarded(cell)
        return cell if cell in sample_ids and text not in sample_ids else text

    return _marks_of_rows(str(path), _csv_rows(path, warnings), warnings, id_of, unguarded)


def _mark_of(annotated: Annotated) -> MarkedSample:
    """The mark that a decision in another tool stands for."""
    if annotated.chosen is None:
        return MarkedSample(Mark.DROP, given=annotated.given)
    if annotated.chosen == annotated.given:
        return MarkedSample(Mark.KEEP, given=annotated.given)
    return MarkedSample(Mark.RELABEL, annotated.chosen, annotated.given)


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
        cell, mark, label, given, content, order, number = (row.get(name) or "" for name in COLUMNS)
        sample_id = id_of(cell)
        if not mark.strip():
            unmarked += 1
            continue
        if sample_id in samples:
            repeated.add(sample_id)
        marked = _parse_mark(f"{where}, {place}", mark, text_of(label.strip()))
        samples[sample_id] = replace(
            marked,
            given=text_of(given) or None,
            content=_digest(content.strip()),
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


def _parse_mark(where: str, text: str, label: str) -> MarkedSample:
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
    takes_class = mark.kind.needs_class or mark is Mark.OFF
    return MarkedSample(mark, (label or None) if takes_class else None)


def _digest(text: str) -> bytes | None:
    """The digest of a content in hexadecimal digits; None for anything else."""
    try:
        return bytes.fromhex(text) or None
    except ValueError:
        return None


def _csv_rows(path: Path, warnings: list[str]) -> Iterable[tuple[str, Mapping[str, str]]]:
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
    names = [name for name in COLUMNS if name in table.column_names]
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


def refuse_marks_of_boxes(marks: Mapping[str, MarkedSample], *, boxes: bool) -> None:
    """Raises CleaningError for marks of boxes where the samples are none."""
    known = kinds_for(boxes=boxes)
    others = {name: each.mark for name, each in marks.items() if each.mark not in known}
    if others:
        raise CleaningError(
            f"{count_of(len(others), 'sample')} {is_or_are(len(others))} marked "
            f"{' or '.join(sorted({*others.values()}))}, which only boxes of objects can be, and "
            f"these scores are not known to be of boxes: {list_names(list(others), LISTED)}",
            f"mark them {', '.join(known)}; if they are boxes, score the dataset again, as older "
            "scores do not say so",
            parameter="marks",
        )


def unverified(rows: pa.Table) -> pa.Table:
    """The rows of scores about whose label nobody has decided."""
    return rows.filter(rows[MARK_COLUMN].is_null()) if MARK_COLUMN in rows.column_names else rows


def describe_round(number: int, counts: Mapping[str, int], newly_doubtful: int | None) -> str:
    """A round of scores in words.

    Args:
        counts: Number of samples that had each mark before.
        newly_doubtful: As in `Provenance`.
    """
    doubtful = "" if newly_doubtful is None else f" · {newly_doubtful:,} newly doubtful"
    return f"Round {number}: {count_kinds(counts)}{doubtful}"


def marks_file(scores: Path) -> Path:
    """Where the marks of the samples of a score file are remembered."""
    return scores.with_suffix(".marks.csv")


def undone_file(scores: Path) -> Path:
    """Where marks that are taken back do not replace others."""
    names = (f".marks.undone{'' if each == 1 else f'-{each}'}.csv" for each in count(1))
    return next(path for name in names if not (path := scores.with_suffix(name)).exists())


def marks_table(marks: Mapping[str, MarkedSample]) -> pa.Table:
    """Marks as a table, which `marks_of_table` reads."""
    columns = {
        ID_COLUMN: list(marks),
        MARK_COLUMN: [each.mark.value for each in marks.values()],
        GIVEN_LABEL: [each.given for each in marks.values()],
        "content": [each.content and each.content.hex() for each in marks.values()],
    }
    return pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()})


def write_marks(path: Path, marks: Mapping[str, MarkedSample]) -> None:
    """Writes marks as CSV, as `read_marks` reads it, and the checksum of the file beside it.

    The file appears whole or not at all.
    """
    with replacing(path) as temporary:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            write_rows(file, COLUMNS, starmap(_row_of, marks.items()))
        write_checksum_beside(path, temporary)


def _row_of(sample_id: str, mark: MarkedSample) -> Iterable[str]:
    content = "" if mark.content is None else mark.content.hex()
    texts = (sample_id, mark.mark.value, mark.label or "", mark.given or "", content)
    return (*texts, mark.order, str(mark.round or ""))


def delete_marks(path: Path) -> None:
    """Deletes a file of marks, which may be gone, and its checksum."""
    path.unlink(missing_ok=True)
    checksum_file(path).unlink(missing_ok=True)


def compose(history: MarkHistory) -> Marks:
    """All marks of a dataset, by the ids that its samples had when they were marked."""
    earlier, later = history.earlier, history.later
    every = dict(earlier.samples)
    for sample_id, mark in later.samples.items():
        every[sample_id] = history.numbered(mark).after(every.get(sample_id))
    return Marks(every, (*earlier.warnings, *later.warnings))


def remembered_marks(scores: Path, sample_ids: Collection[str] = ()) -> Marks:
    """The marks beside a score file; none where there is no such file."""
    path = marks_file(scores)
    return read_marks(path, sample_ids) if path.exists() else NO_MARKS
