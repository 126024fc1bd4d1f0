"""Columns of other tables beside the scores of an explorer, in a memory-mapped file.

The file has the samples of all rounds, each of which is a job with some of them.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from api.bounded_cache import BoundedCache
from api.jobs.store import Job
from api.results.score_columns import OpenScores
from api.settings import Settings
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import UNREADABLE, map_arrow, write_arrow
from difficulty_service.review.sample_columns import SampleColumn, SampleColumns

MAX_OPEN = 8
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


class OpenColumns:
    """Gives the columns beside the scores to the jobs of an explorer, and keeps those used last."""

    def __init__(self, settings: Settings, open_scores: OpenScores) -> None:
        # A service reads no tables beside its jobs.
        self._path = None if settings.takes_jobs else joined_file(settings)
        self._open_scores = open_scores
        self._open: BoundedCache[str, SampleColumns] = BoundedCache(MAX_OPEN)

    def get(self, job: Job) -> SampleColumns:
        """The columns of the samples of a succeeded job; empty where there are none."""
        return self._open.get(job.id, lambda: self._load(job))

    def _load(self, job: Job) -> SampleColumns:
        if self._path is None or not self._path.exists():
            return {}
        try:
            ids, columns = map_joined(self._path)
        except (DamagedFile, *UNREADABLE) as error:
            structlog.get_logger().error("columns-damaged", reason=str(error))
            return {}
        wanted = self._open_scores.get(job).samples.ids
        if wanted.equals(ids):
            return columns
        rows = pc.index_in(wanted, value_set=ids).fill_null(-1).to_numpy()
        return {name: column.take(rows) for name, column in columns.items()}
