"""Reads tables of text as people bring them: CSV, tables with tabs, JSON Lines and lists in JSON.

What a file does not say of itself, the character between its columns, its encoding and its decimal
point, is told by its content. Where that is a guess, a sentence says what was assumed.
"""

import csv
import io
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from difficulty_service.base.csv_cells import unguard_text
from difficulty_service.base.errors import DatasetError
from difficulty_service.base.json_text import MOST_LEVELS, NestedTooDeeply, ShallowJson
from difficulty_service.datasets.json_tables import (
    ENDING,
    HEAD,
    as_lines,
    first_names,
    holds_list,
    read_json,
)
from difficulty_service.datasets.labels import CLEANED, is_text
from difficulty_service.datasets.quoted_cells import loose_quote
from difficulty_service.datasets.storage import StoredPath, open_arrow_file

DELIMITED_EXTENSIONS = (".csv", ".tsv", ".txt")

_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars", " ": "spaces"}
_TABS = (".tsv", ".txt")  # extensions of files whose columns usually end at tabs
_HEAD_ROWS = 200
_BLOCK = 64 << 20  # maximum length of a line, or of a row with line breaks
_EXCEL = re.compile(r"sep=.?\r?\n")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_FALLBACK = "cp1252"  # what programs of Windows write in western Europe and America
_QUOTED = r'^"(?:[^"]|"")*"$'
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+")


@dataclass(frozen=True)
class _Dialect:
    delimiter: str = ","
    decimal_point: str = "."
    encoding: str = "utf8"
    names: tuple[str, ...] = ()
    has_blanks: bool = False


def read_text_table(
    place: StoredPath, name: str, text_columns: Container[str], *, multiline: bool
) -> tuple[pa.Table, str | None]:
    """All rows of a file, and the note of a `TableFile`; arguments as for `open_table_file`.

    Raises:
        DatasetError: The encoding cannot be told, JSON is nested too deeply, or JSON Lines are a
            list.
        OSError, pyarrow.ArrowException, UnicodeError: The file cannot be read.
    """
    if not name.lower().endswith(DELIMITED_EXTENSIONS):
        try:
            return _read_lines(place), None
        except NestedTooDeeply as error:
            raise DatasetError(
                f"{name!r} has lists or objects inside more than {MOST_LEVELS} others",
                "leave out the columns that have, or write them as text",
            ) from error
        except pa.ArrowInvalid as error:
            if not holds_list(place):
                raise
            raise DatasetError(
                f"{name!r} is one list in JSON, not JSON Lines, an object in each line",
                "rename it to end in .json",
            ) from error
    dialect = _detect(place, name)
    try:
        table = _read(place, dialect, text_columns, multiline=multiline)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if isinstance(error, pa.ArrowInvalid) and "invalid UTF8" not in str(error):
            raise
        table = None
    # Of text, only such as is not UTF-8 becomes binary.
    if table is None or any(pa.types.is_binary(field.type) for field in table.schema):
        dialect = _detect(place, name, _FALLBACK)
        try:
            table = _read(place, dialect, text_columns, multiline=multiline)
        except UnicodeDecodeError as error:
            raise DatasetError(
                f"{name!r} is neither UTF-8 nor {_FALLBACK}", "save it as UTF-8"
            ) from error
    _refuse_swallowed_rows(table, place, name)
    _refuse_names_again(table, name)
    return table, _assumptions(name, dialect)


def _refuse_swallowed_rows(table: pa.Table, place: StoredPath, name: str) -> None:
    """Refuses a table in which a quote without another one took lines into its cell."""
    texts = [column for column in table.columns if is_text(column.type)]
    if not any(pc.any(pc.match_substring(column, "\n")).as_py() for column in texts):
        return
    content = read_text(place, name)
    line = loose_quote(content.text, content.delimiter)
    if line is not None:
        raise DatasetError(
            f"a quote in line {line:,} of {name!r} begins a cell, and none ends it, so that the "
            "lines below would be part of that",
            "write such cells in quotes, with each quote inside them twice; where all quotes are "
            f"text, pandas does by `read_csv(path, sep={content.delimiter!r}, quoting=3)` and "
            "`to_csv`",
        )


def _refuse_names_again(table: pa.Table, name: str) -> None:
    """Refuses a table with its first line in it again, as where files are put one after another.

    All of its numbers would be texts.
    """
    columns = [each for each in zip(table.column_names, table.columns, strict=True) if each[0]]
    if not columns[1:] or not all(is_text(column.type) for _, column in columns):
        return
    again = np.ones(len(table), bool)
    for each, column in columns:
        is_name = pc.equal(pc.utf8_trim_whitespace(column), each)
        again &= pc.fill_null(is_name, fill_value=False).to_numpy()
        if not again.any():
            return
    raise DatasetError(
        f"row {int(again.argmax()) + 1:,} of {name!r} has the names of its columns again",
        "take out each such line but the first",
    )


def first_cells(place: StoredPath, name: str) -> tuple[str, ...]:
    """The names of the columns of a file, by its first line; none where it cannot be read so."""
    try:
        with open_arrow_file(place) as source:
            return names_in(source.read(HEAD), name)
    except (OSError, pa.ArrowException, DatasetError, ValueError):
        return ()


def names_in(head: bytes, name: str) -> tuple[str, ...]:
    """The same by the first bytes of a file; raises DatasetError or ValueError where it cannot."""
    if name.lower().endswith(DELIMITED_EXTENSIONS):
        return tuple(map(_plain_name, _dialect(head, name).names))
    return first_names(head, name)


@dataclass(frozen=True)
class DelimitedText:
    """A table of text as it is, its mark of UTF-8 or UTF-16 included."""

    text: str
    delimiter: str
    encoding: str

    def encode(self, text: str) -> bytes:
        """Another text in the same encoding."""
        return text.encode(self.encoding)


def read_text(place: StoredPath, name: str) -> DelimitedText:
    """The whole text of a file that `read_text_table` can read."""
    dialect = _detect(place, name)
    with open_arrow_file(place) as source:
        data = source.read()
    encoding = "utf-8"
    if dialect.encoding == "utf-16":
        encoding = "utf-16-le" if data.startswith(_UTF_16[0]) else "utf-16-be"
    try:
        return DelimitedText(data.decode(encoding), dialect.delimiter, encoding)
    except UnicodeDecodeError:
        return DelimitedText(data.decode(_FALLBACK), dialect.delimiter, _FALLBACK)


def decode_names(fields: Iterable[pa.Field]) -> None:
    """Raises UnicodeDecodeError where the name of a column, or inside one, is not UTF-8."""
    for field in fields:
        field.name  # noqa: B018 - decodes it
        if pa.types.is_nested(field.type):
            decode_names(field.type.field(index) for index in range(field.type.num_fields))


def _read_lines(place: StoredPath) -> pa.Table:
    """The rows of JSON; texts that look like times stay texts."""
    options = pyarrow.json.ReadOptions(block_size=_BLOCK)
    with _open_lines(place) as source:
        table = pyarrow.json.read_json(ShallowJson(source), read_options=options)
    decode_names(table.schema)
    texts = [field.with_type(_without_times(field.type)) for field in table.schema]
    changed = [field for field in texts if field.type != table.schema.field(field.name).type]
    if not changed:
        return table
    parse = pyarrow.json.ParseOptions(explicit_schema=pa.schema(changed))
    with _open_lines(place) as source:
        checked = ShallowJson(source)  # the file may have changed
        again = pyarrow.json.read_json(checked, read_options=options, parse_options=parse)
    return again.select(table.schema.names)


def _open_lines(place: StoredPath) -> pa.NativeFile | io.BytesIO:
    """JSON Lines, or another table in JSON as such."""
    if place.name.lower().endswith(ENDING):
        return as_lines(read_json(place), place.name)
    return open_arrow_file(place)


def _without_times(kind: pa.DataType) -> pa.DataType:
    """A type with text in place of times, which JSON has not."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        fields = map(kind.field, range(kind.num_fields))
        return pa.struct([field.with_type(_without_times(field.type)) for field in fields])
    return kind


def _read(
    place: StoredPath, dialect: _Dialect, text_columns: Container[str], *, multiline: bool
) -> pa.Table:
    # Only an empty cell is null, because a class may be called "NA" or "null".
    convert = pyarrow.csv.ConvertOptions(
        column_types={
            name: pa.string() for name in dialect.names if _plain_name(name) in text_columns
        },
        null_values=[""],
        strings_can_be_null=True,
        decimal_point=dialect.decimal_point,
    )
    # Only where texts are expected: an open quote elsewhere would swallow the rows below it.
    parse = pyarrow.csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=multiline)
    read = pyarrow.csv.ReadOptions(
        block_size=_BLOCK if multiline else None, encoding=dialect.encoding
    )
    with open_arrow_file(place) as source:
        table = pyarrow.csv.read_csv(source, read, parse, convert)
    decode_names(table.schema)
    if dialect.has_blanks:
        table = _without_blanks(table)
    names = [name.strip() for name in table.column_names]
    if CLEANED.issubset(names):  # another program's `'=` may be what it means
        table = unguard_text(table)
    return table.rename_columns(names) if len(set(names)) == len(names) else table


def _without_blanks(table: pa.Table) -> pa.Table:
    """The table without the blanks around commas where its writer sets one behind each.

    Quotes after a blank are cells' own for the reader, and were around them for the writer.
    """
    columns = [
        _unquoted(pc.utf8_trim_whitespace(column)) if is_text(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, [_plain_name(name) for name in table.column_names])


def _unquoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts without the quotes around them; what is empty in these is missing."""
    inside = pc.replace_substring(pc.utf8_slice_codeunits(column, 1, -1), '""', '"')
    texts = pc.if_else(pc.match_substring_regex(column, _QUOTED), inside, column)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def _plain_name(name: str) -> str:
    """The name of a column without blanks around it, and quotes that stand behind one."""
    name = name.strip()
    return name[1:-1] if re.fullmatch(_QUOTED, name) else name


def _detect(place: StoredPath, name: str, usual: str = "utf8") -> _Dialect:
    with open_arrow_file(place) as source:
        return _dialect(source.read(HEAD), name, usual)


def _dialect(data: bytes, name: str, usual: str = "utf8") -> _Dialect:
    encoding = "utf-16" if data.startswith(_UTF_16) else usual
    if encoding == usual and b"\0" in data.partition(b"\n")[0]:
        raise DatasetError(
            f"{name!r} begins with zeros between its letters, as UTF-16 without a mark does",
            "save it as UTF-8",
        )
    head = data.decode("utf-8-sig" if encoding == "utf8" else encoding, "replace")
    if _EXCEL.match(head):
        raise DatasetError(
            f"{name!r} begins with the line {head.splitlines()[0]!r}, which only Excel reads",
            "remove that line",
        )
    if len(data) == HEAD:  # the last line is not whole
        head = head[: head.rfind("\n") + 1] or head
    delimiter = _delimiter(head, _usual_delimiter(name))
    names = tuple(next(iter(_rows(head, delimiter)), ()))
    has_blanks = len(names) > 1 and all(name.startswith(" ") for name in names[1:])
    return _Dialect(delimiter, _decimal_point(head, delimiter), encoding, names, has_blanks)


def _usual_delimiter(name: str) -> str:
    return "\t" if name.lower().endswith(_TABS) else ","


def _delimiter(head: str, usual: str) -> str:
    """The character by which the header has most columns, and as many as every row.

    `csv.Sniffer` counts characters, and takes the semicolons inside `cat;dog` for ends of columns.
    """
    splitting: list[str] = []
    best, most = usual, 1
    for delimiter in (usual, *_DELIMITERS):
        # Lists of paths and labels have spaces; elsewhere they are parts of names.
        if delimiter == " " and usual != "\t":
            continue
        rows = _rows(head, delimiter)
        if rows and len(rows[0]) > 1:
            splitting.append(delimiter)
            if len(rows[0]) > most and all(len(row) == len(rows[0]) for row in rows):
                best, most = delimiter, len(rows[0])
    # Where rows differ in length, the reader of the file says which one does.
    return best if most > 1 or not splitting else splitting[0]


def _decimal_point(head: str, delimiter: str) -> str:
    if delimiter == ",":
        return "."
    cells = [cell for row in _rows(head, delimiter)[1:] for cell in row]
    has_commas = any(map(_DECIMAL_COMMA.fullmatch, cells))
    return "," if has_commas and not any(map(_DECIMAL_POINT.fullmatch, cells)) else "."


def _rows(head: str, delimiter: str) -> list[list[str]]:
    """The first rows that are not empty."""
    rows = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    try:
        return [row for row in islice(rows, _HEAD_ROWS) if row]
    except csv.Error:  # a cell of more than 128 KiB
        return []


def _assumptions(name: str, dialect: _Dialect) -> str | None:
    """What was guessed; None where the name or a mark in the file says it all."""
    guesses = []
    if dialect.delimiter != _usual_delimiter(name):
        guesses.append(f"with {_DELIMITERS[dialect.delimiter]} between its columns")
    if dialect.decimal_point == ",":
        guesses.append("with decimal commas")
    if dialect.encoding == _FALLBACK:
        guesses.append(f"as {_FALLBACK}, because it is not UTF-8")
    if not guesses:
        return None
    remedy = "; if letters look wrong, save it as UTF-8" * (dialect.encoding == _FALLBACK)
    return f"is read {' and '.join(guesses)}{remedy}"
