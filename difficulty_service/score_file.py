"""The score file: one Parquet row per sample, and where the scores came from.

This schema is the contract between writers and readers of scores; `docs/score-file.md` documents
it. Larger is harder in every score column.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.errors import ScoreFileError
from difficulty_service.files.atomic_file import replacing

SCHEMA_VERSION = 1
METADATA_KEY = b"difficulty"

SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("label_name", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("md", pa.float64()),
        pa.field("md_agnostic", pa.float64()),
        pa.field("rmd", pa.float64()),
        pa.field("rmd_std", pa.float32()),
        pa.field("rmd_loo", pa.float64()),
        pa.field("nearest_label", pa.int32()),
        pa.field("label_margin", pa.float64()),
        pa.field("percentile", pa.float32()),
        pa.field("kmeans", pa.float32()),
        pa.field("knn", pa.float32()),
    ]
)


@dataclass(frozen=True)
class ScoreFile:
    """The contents of a score file.

    Attributes:
        table: One row per sample; the columns of SCHEMA or some of them.
        provenance: Dataset, backbone, weights, Gaussians and counts that the scores come from.
    """

    table: pa.Table
    provenance: Mapping[str, Any]


def write_scores(
    path: Path, parts: pa.Table | Iterable[pa.Table], provenance: Mapping[str, Any]
) -> None:
    """Writes a score file; it appears whole or not at all.

    Args:
        path: File to write; an existing one is replaced.
        parts: One table, or several that become a row group each. Columns of SCHEMA, in any order;
            a nullable column may be omitted.
        provenance: JSON values; the schema version is added.

    Raises:
        ScoreFileError: A column is unknown, missing or cannot take its type.
    """
    described = json.dumps(
        {"schema_version": SCHEMA_VERSION, **provenance}, sort_keys=True, allow_nan=False
    )
    schema = SCHEMA.with_metadata({METADATA_KEY: described.encode()})
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for part in [parts] if isinstance(parts, pa.Table) else parts:
            writer.write_table(to_schema(part).replace_schema_metadata(schema.metadata))


def to_schema(part: pa.Table) -> pa.Table:
    """The columns of SCHEMA, in its order and types; nulls where a nullable column is missing.

    Raises:
        ScoreFileError: A column is unknown, missing or cannot take its type.
    """
    unknown = sorted(set(part.column_names) - set(SCHEMA.names))
    if unknown:
        raise ScoreFileError(f"unknown score columns {unknown}; the schema has {SCHEMA.names}")
    return pa.table([_column(part, field) for field in SCHEMA], schema=SCHEMA)


def read_scores(path: Path, columns: Sequence[str] | None = None) -> ScoreFile:
    """Reads a score file, or some of its columns.

    Raises:
        ScoreFileError: The file is missing, is not a score file, has a version that this package
            does not know, or lacks a column.
    """
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            provenance = _provenance(path, schema)
            missing = sorted(set(columns or SCHEMA.names) - set(schema.names))
            if missing:
                raise ScoreFileError(f"{path} lacks the columns {missing}; it has {schema.names}")
            table = file.read(columns=list(columns or SCHEMA.names))
    except FileNotFoundError:
        raise ScoreFileError(f"there is no score file {path}") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise ScoreFileError(f"{path} cannot be read as Parquet: {error}") from error
    return ScoreFile(table.replace_schema_metadata(None), provenance)


def _provenance(path: Path, schema: pa.Schema) -> Mapping[str, Any]:
    described = (schema.metadata or {}).get(METADATA_KEY)
    if described is None:
        raise ScoreFileError(
            f"{path} is not a score file: its metadata lacks the key {METADATA_KEY.decode()!r}"
        )
    provenance: Mapping[str, Any] = json.loads(described)
    version = provenance.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ScoreFileError(
            f"{path} has score schema {version}, but this package reads {SCHEMA_VERSION}",
            "score again with this package, or install the one that wrote the file",
        )
    return provenance


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in table.column_names:
        if not field.nullable:
            raise ScoreFileError(f"the scores lack the column {field.name!r}")
        return pa.nulls(len(table), field.type)
    column = table[field.name]
    if not field.nullable and column.null_count:
        raise ScoreFileError(f"column {field.name!r} has {column.null_count} nulls, expected none")
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ScoreFileError(f"column {field.name!r} cannot be {field.type}: {error}") from error
