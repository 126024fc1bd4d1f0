"""The score file: one row per sample, and where the scores came from.

This schema is the contract between writers and readers of scores; `score_columns` declares its
columns, and `docs/score-file.md` documents it. A file has the columns that were computed, and no
others. Larger is harder in every score column. The ending of the name chooses the format. Parquet
also holds where the scores came from; CSV and JSON Lines have a JSON file beside them for that.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.checksums import (
    ChangedFile,
    DamagedFile,
    describe_change,
    dump_checked,
    load_checked,
)
from difficulty_service.base.errors import NoScores, ScoreFileError
from difficulty_service.base.files import file_sha256, replacing, require_output_file
from difficulty_service.base.json_text import parse_json
from difficulty_service.base.plain_columns import plain_column, plain_type
from difficulty_service.base.tables import (
    UNREADABLE,
    WRITERS,
    open_parquet,
    read_csv,
    read_json_lines,
)
from difficulty_service.base.wording import list_names
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import COLUMNS, ColumnType, require_columns

SCHEMA_VERSION = 2
METADATA_KEY = b"difficulty"
CONTENT_KEY = "sha256"
"""Key, beside a file of text, of the checksum of that file as it was written."""

REMEDY = "score again, or take a copy of the file"

NAMED = 12
"""Number of columns that a message names."""

_TYPES: Mapping[ColumnType, pa.DataType] = {
    "string": pa.string(),
    "dictionary of string": pa.dictionary(pa.int32(), pa.string()),
    "int32": pa.int32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}

SCHEMA = pa.schema(
    [
        pa.field(column.name, _TYPES[column.type], nullable=not column.required)
        for column in COLUMNS.values()
    ]
)
"""Every column that a file may have, in their order; those that take no nulls are in every file."""

REQUIRED = tuple(field.name for field in SCHEMA if not field.nullable)
"""Columns of every file."""

READERS: Mapping[str, Callable[[Path, pa.Schema], pa.Table]] = {
    ".csv": read_csv,
    ".jsonl": read_json_lines,
}
"""Readers of the formats that have their provenance in a file beside them."""


@dataclass(frozen=True)
class ScoreFile:
    """The contents of a score file.

    Attributes:
        table: One row per sample; those columns of SCHEMA that were computed, or some of them.
        provenance: Where the scores come from; only a warning that nothing is known, where another
            program left it out or the file beside a CSV or JSON Lines file is gone.
        path: File that they were read from, beside which their features are; None for others.
    """

    table: pa.Table
    provenance: Provenance
    path: Path | None = field(default=None, compare=False)

    def column(self, name: str) -> pa.ChunkedArray:
        """One column."""
        require_columns([name], self.table.column_names, "the score file")
        return self.table[name]


def require_score_file_name(path: Path) -> None:
    """Raises ScoreFileError where `write_scores` could not write to a path."""
    require_output_file(path, WRITERS, ScoreFileError)


def provenance_file(path: Path) -> Path:
    """The file that holds the provenance of a score file in CSV or JSON Lines."""
    return path.with_name(f"{path.name}.json")


def write_scores(path: Path, parts: pa.Table | Iterable[pa.Table], provenance: Provenance) -> None:
    """Writes a score file; it appears whole or not at all.

    Args:
        path: File to write, which ends in .parquet, .csv or .jsonl; an existing one is replaced.
        parts: One table, or several that become a row group each, with the same columns. These
            are columns of SCHEMA, in any order; those that were not computed are left out.

    Raises:
        ScoreFileError: The name has another ending or is that of a folder, or a column is unknown,
            missing or cannot take its type.
    """
    require_score_file_name(path)
    description = {"schema_version": SCHEMA_VERSION, **provenance.to_json()}
    described = json.dumps(description, sort_keys=True, allow_nan=False)
    remaining = iter([parts] if isinstance(parts, pa.Table) else parts)
    first = next(remaining, None)
    fields = _fields(() if first is None else first.column_names)
    schema = fields.with_metadata({METADATA_KEY: described.encode()})
    ending = path.suffix.lower()
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))
        with WRITERS[ending](temporary, schema) as write:
            for part in () if first is None else chain([first], remaining):
                write(_conform(part, fields).replace_schema_metadata(schema.metadata))
        if ending in READERS:
            beside = stack.enter_context(replacing(provenance_file(path)))
            described_beside = {**description, CONTENT_KEY: file_sha256(temporary)}
            beside.write_text(dump_checked(described_beside, indent=1, sort_keys=True) + "\n")


def to_schema(part: pa.Table) -> pa.Table:
    """The columns of a table in the order and with the types of SCHEMA."""
    return _conform(part, _fields(part.column_names))


def read_scores(path: Path, columns: Sequence[str] | None = None) -> ScoreFile:
    """Reads a score file, or some of its columns.

    Args:
        path: Score file. A name that ends in .csv or .jsonl is read as such, any other as Parquet.
        columns: Columns of SCHEMA, or columns that were added to the file; None for those of SCHEMA
            that the file has.

    Raises:
        ScoreFileError: The file is missing, is not a score file, has a version that this package
            does not know, has a provenance with values of another type, or lacks a column; the
            remedy is then what computes it.
        NoScores: It is a Parquet file of something else.

    Warns:
        ChangedFile: Another program wrote the file again without its provenance, or, as text, has
            changed it.
    """
    with open_scores(path) as opened:
        table = opened.read(columns or _fields(opened.schema.names).names)
    return ScoreFile(table, opened.provenance, path)


def read_score_schema(path: Path) -> pa.Schema:
    """Names and types of all columns, as `read_scores` reads them; errors as there."""
    with open_scores(path) as opened:
        return opened.schema


@dataclass(frozen=True)
class OpenScoreFile:
    """A score file that is open, whose columns are read when they are needed.

    Attributes:
        schema: Names and types of all columns, as they are read.
        provenance: As in `ScoreFile`.
    """

    path: Path
    schema: pa.Schema
    provenance: Provenance
    _read: Callable[[list[str]], pa.Table]

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some columns in their order, as long as the file is open; errors as of `read_scores`."""
        names = list(columns)
        require_columns(names, self.schema.names, str(self.path))
        with _naming_errors(self.path):
            table = _with_types(self.path, self._read(names)).select(names)
        return table.replace_schema_metadata(None)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file, in hexadecimal digits; also known once it is closed."""
        return file_sha256(self.path)


@contextmanager
def open_scores(path: Path) -> Iterator[OpenScoreFile]:
    """Opens a score file within the context; its checksum is verified once.

    Errors and warnings are those of `read_scores`.
    """
    with ExitStack() as stack:
        with _naming_errors(path):
            opened = stack.enter_context(_opened(path))
        yield opened


@contextmanager
def _opened(path: Path) -> Iterator[OpenScoreFile]:
    """Opens a score file of any format."""
    ending = path.suffix.lower()
    if ending in READERS:
        table = READERS[ending](path, SCHEMA)
        table.validate(full=True)  # text of JSON that is not UTF-8
        schema = _schema_read(table.schema)
        yield OpenScoreFile(path, schema, _provenance_beside(path), table.select)
        return
    with open_parquet(path) as file:
        schema = file.schema_arrow
        described = (file.metadata.metadata or {}).get(METADATA_KEY)
        if described is None:
            _require_scores(path, schema.names)
            provenance = _lost(path, f"the key {METADATA_KEY.decode()!r} of its metadata")
        else:
            provenance = _checked(path, parse_json(described))
        yield OpenScoreFile(
            path,
            _schema_read(schema),
            provenance,
            lambda columns: file.read(columns=columns),
        )


@contextmanager
def _naming_errors(path: Path) -> Iterator[None]:
    """Raises ScoreFileError with the name of the file for what is wrong with its bytes."""
    ending = path.suffix.lower()
    try:
        yield
    except FileNotFoundError:
        raise ScoreFileError(f"there is no score file {path}") from None
    except DamagedFile as error:
        raise ScoreFileError(f"{path} is damaged: {error}", REMEDY) from error
    except UNREADABLE as error:
        kind = {".csv": "CSV", ".jsonl": "JSON Lines"}.get(ending, "Parquet")
        raise ScoreFileError(f"{path} cannot be read as {kind}: {error}", REMEDY) from error


def _provenance_beside(path: Path) -> Provenance:
    """The provenance of a file of text; nothing is known where the file that holds it is gone."""
    beside = provenance_file(path)
    try:
        values = load_checked(beside.read_text())
        if values.pop(CONTENT_KEY, None) not in {None, file_sha256(path)}:
            warnings.warn(describe_change(path), ChangedFile, stacklevel=2)
        return _checked(beside, values)
    except FileNotFoundError:
        return _lost(path, f"{beside.name} beside it")
    except ValueError as error:
        raise ScoreFileError(f"{beside} is damaged: {error}", REMEDY) from error


def _require_scores(path: Path, names: Sequence[str]) -> None:
    """Raises NoScores for a table that has no ids, or no column that is made by scoring."""
    scored = {*COLUMNS} - {*REQUIRED}
    if REQUIRED[0] not in names or scored.isdisjoint(names):
        raise NoScores(
            f"{path} is not a score file: its metadata lacks the key {METADATA_KEY.decode()!r}, "
            f"and it has not both a column {REQUIRED[0]!r} and one of scores; its columns are "
            f"{list_names(names, NAMED)}",
            "name the file that `difficulty score` wrote, or keep these columns where another "
            "program writes it again",
        )


def _lost(path: Path, what: str) -> Provenance:
    """What is known of scores that another program wrote again: a warning, also issued as one."""
    sentence = (
        f"{path} has lost {what}: the dataset, backbone, options and reliability of its scores, "
        "whether they are of boxes or tags, and classes without a sample are unknown; if that "
        "matters, use the original file"
    )
    warnings.warn(sentence, ChangedFile, stacklevel=2)
    return Provenance.of({"warnings": [sentence]})


def _checked(path: Path, values: Mapping[str, object]) -> Provenance:
    """The provenance, if its version is known and its values have their types."""
    version = values.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ScoreFileError(
            f"{path} has score schema {version}, but this package reads {SCHEMA_VERSION}",
            "score again",
        )
    try:
        return Provenance.of(values)
    except ValueError as error:
        raise ScoreFileError(f"the provenance of {path} {error}", REMEDY) from error


def _with_types(path: Path, table: pa.Table) -> pa.Table:
    """The columns in the types of SCHEMA, which text does not tell and other programs change."""
    schema = _schema_read(table.schema)
    columns = []
    for found, wanted, column in zip(table.schema, schema, table.columns, strict=True):
        try:
            columns.append(_of_type(column, wanted.type))
        except pa.ArrowException as error:
            raise ScoreFileError(
                f"column {found.name!r} of {path} is of type {found.type} and cannot be "
                f"{wanted.type}: {error}",
                REMEDY,
            ) from error
        if not wanted.nullable and (absent := columns[-1].null_count):
            raise ScoreFileError(
                f"column {found.name!r} of {path} has {absent:,} nulls, expected none",
                "leave out rows without a sample",
            )
    return pa.table(columns, schema=schema)


def _schema_read(schema: pa.Schema) -> pa.Schema:
    """The columns of a file as they are read: of SCHEMA, and others of plain types."""
    return pa.schema(
        [
            SCHEMA.field(field.name)
            if field.name in SCHEMA.names
            else pa.field(field.name, plain_type(field.type))
            for field in schema
        ]
    )


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in another type; NaN, which pandas has in place of nulls, becomes null.

    No file holds NaN: statistics of Parquet leave it out, so that conditions of DuckDB miss it.
    """
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if column.type == kind:
        return column
    column = plain_column(column)
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type).dictionary_encode()
    return column.cast(kind)


def _fields(names: Iterable[str]) -> pa.Schema:
    """The part of SCHEMA with these columns and those of every file."""
    chosen = {*names, *REQUIRED}
    return pa.schema([field for field in SCHEMA if field.name in chosen])


def _conform(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, with its types."""
    unknown = sorted(set(part.column_names) - set(SCHEMA.names))
    if unknown:
        raise ScoreFileError(f"unknown score columns {unknown}; the schema has {SCHEMA.names}")
    others = sorted(set(part.column_names) - set(schema.names))
    if others:
        raise ScoreFileError(f"the first scores of the file lack the columns {others}")
    return pa.table([_column(part, field) for field in schema], schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in table.column_names:
        raise ScoreFileError(f"the scores lack the column {field.name!r}")
    column = table[field.name]
    if not field.nullable and column.null_count:
        raise ScoreFileError(f"column {field.name!r} has {column.null_count} nulls, expected none")
    try:
        return _of_type(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ScoreFileError(f"column {field.name!r} cannot be {field.type}: {error}") from error
