"""The columns of a score file that the pages read, in a memory-mapped file beside it.

Parquet has to be decoded for every request; this file is used as it lies on disk, so that a page of
a million samples takes milliseconds, and its memory is the system's file cache.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checksum import DamagedFile, empty_line, fill_in, verify_path
from difficulty_service.reporting.charts import Scale, scale_of
from difficulty_service.reporting.samples import ScoredSamples, to_samples
from difficulty_service.score_file import ScoreFile

FORMAT = 2
"""Version of the layout; a file of another version is made anew."""

_KEY = b"difficulty-columns"
_ARRAYS = ("labels", "nearest", "margins", "rmd", "agnostic", "percentiles")


@dataclass(frozen=True)
class ScoreColumns:
    """The scores of a finished job.

    Attributes:
        samples: Columns by name, memory-mapped.
        provenance: Where the scores come from.
        scale: Axis of the histograms of `rmd`; None where the scores do not differ.
    """

    samples: ScoredSamples
    provenance: dict[str, Any]
    scale: Scale | None


def write_columns(path: Path, scores: ScoreFile) -> None:
    """Writes the file; it appears whole or not at all.

    Args:
        path: File to write.
        scores: A score file with at least `report.samples.COLUMNS`.
    """
    samples = to_samples(scores)
    columns: dict[str, pa.Array] = {"ids": samples.ids, "copy_of": samples.copy_of}
    columns |= {name: pa.array(getattr(samples, name)) for name in _ARRAYS}
    batch = pa.record_batch(columns)
    description = {
        "format": FORMAT,
        "names": list(samples.names.items()),
        "provenance": dict(scores.provenance),
    }
    schema = batch.schema.with_metadata({_KEY: json.dumps(description).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        with pa.ipc.new_file(temporary, schema) as file:
            file.write_batch(batch.replace_schema_metadata(schema.metadata))
        with temporary.open("ab") as end:
            position = end.tell()
            end.write(empty_line())
        fill_in(temporary, position)


def map_columns(path: Path) -> ScoreColumns | None:
    """Maps a file that `write_columns` has written; None if there is no whole one."""
    try:
        checksum = verify_path(path)
    except (FileNotFoundError, DamagedFile):
        return None
    if checksum is None:
        return None
    columns = pa.memory_map(str(path)).read_buffer(checksum.position)
    reader = pa.ipc.open_file(pa.BufferReader(columns))
    description = json.loads(reader.schema.metadata[_KEY])
    if description["format"] != FORMAT:
        return None
    batch = reader.get_batch(0)

    def array(name: str) -> NDArray[Any]:
        return np.asarray(batch[name].to_numpy(zero_copy_only=True))

    samples = ScoredSamples(
        ids=batch["ids"],
        copy_of=batch["copy_of"],
        names={int(label): str(name) for label, name in description["names"]},
        **{name: array(name) for name in _ARRAYS},
    )
    return ScoreColumns(samples, description["provenance"], scale_of(samples.rmd))
