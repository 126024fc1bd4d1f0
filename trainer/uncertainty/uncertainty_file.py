"""The file of uncertainties: one row per sample, and which head and features they are of."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from difficulty_service.base.errors import TrainingError
from difficulty_service.base.files import replacing, require_output_file
from difficulty_service.base.tables import UNREADABLE, open_parquet, parquet_writer

SCHEMA_VERSION = 1
METADATA_KEY = b"uncertainty"

SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("uncertainty", pa.float32(), nullable=False),
    ]
)
"""Columns of the file; larger is more uncertain."""


@dataclass(frozen=True)
class UncertaintyFile:
    """The contents of a file of uncertainties."""

    table: pa.Table
    provenance: Mapping[str, Any]


def require_uncertainty_file_name(path: Path) -> None:
    """Raises TrainingError where `write_uncertainties` could not write to a path."""
    require_output_file(path, (".parquet",), TrainingError)


def write_uncertainties(
    path: Path, parts: Iterable[pa.Table], provenance: Mapping[str, Any]
) -> None:
    """Writes a file of uncertainties; it appears whole or not at all."""
    require_uncertainty_file_name(path)
    description = {"schema_version": SCHEMA_VERSION, **provenance}
    described = json.dumps(description, sort_keys=True, allow_nan=False)
    schema = SCHEMA.with_metadata({METADATA_KEY: described.encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, parquet_writer(temporary, schema) as write:
        for part in parts:
            write(part)


def read_uncertainties(path: Path) -> UncertaintyFile:
    """Reads a file that `write_uncertainties` wrote."""
    try:
        with open_parquet(path) as file:
            described = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
            table = file.read(SCHEMA.names)
    except FileNotFoundError:
        raise TrainingError(f"there is no file {path}") from None
    except UNREADABLE as error:
        raise TrainingError(
            f"{path} is damaged: {error}", "make it again with `difficulty uncertainty`"
        ) from error
    if described is None or len(table.column_names) != len(SCHEMA):
        raise TrainingError(
            f"{path} is not a file of uncertainties", "make one with `difficulty uncertainty`"
        )
    return UncertaintyFile(table.replace_schema_metadata(None), json.loads(described))
