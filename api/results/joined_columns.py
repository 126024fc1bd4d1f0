"""Columns of other tables beside the scores of a job, in a memory-mapped file."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from api.settings import Settings
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import map_arrow, write_arrow
from difficulty_service.reports.sample_columns import SampleColumn, SampleColumns

_KEY = b"difficulty-joined"
_IDS = "ids"


def joined_file(settings: Settings) -> Path:
    """Where the columns of an explorer are."""
    return settings.data_dir / "joined.arrow"


def write_joined(path: Path, ids: pa.StringArray, columns: SampleColumns) -> Path:
    """Writes the columns of some samples; the file appears whole or not at all.

    Returns its path.
    """
    described = [
        {
            "name": column.name,
            "kind": column.kind,
            "categories": column.categories,
            "is_whole": column.is_whole,
            "is_utc": column.is_utc,
        }
        for column in columns.values()
    ]
    # A name in the metadata may be any text, those of an Arrow file are told apart by number.
    arrays = {
        str(number): pa.array(column.numbers) if column.texts is None else column.texts
        for number, column in enumerate(columns.values())
    }
    batch = pa.record_batch({_IDS: ids} | arrays)
    with replacing(path) as temporary:
        metadata = {_KEY: json.dumps(described).encode()}
        write_arrow(temporary, batch.replace_schema_metadata(metadata))
    return path


def map_joined(path: Path) -> tuple[pa.StringArray, SampleColumns]:
    """Maps the ids and columns of a file that `write_joined` has written.

    Raises:
        DamagedFile: It has changed since, or is another file.
        UNREADABLE: It cannot be read.
    """
    batch, is_checked = map_arrow(path)
    metadata = batch.schema.metadata or {}
    if not is_checked or _KEY not in metadata:
        raise DamagedFile(f"{path} holds no columns with a checksum")
    columns = {}
    for number, described in enumerate(json.loads(metadata[_KEY])):
        values = batch[str(number)]
        is_text = described["kind"] == "text"
        columns[described["name"]] = SampleColumn(
            **{**described, "categories": tuple(described["categories"])},
            numbers=np.empty(0) if is_text else np.asarray(values.to_numpy(zero_copy_only=True)),
            texts=values if is_text else None,
        )
    return batch[_IDS], columns
