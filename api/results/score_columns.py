"""What the pages read of a score file, in a memory-mapped file beside it.

Parquet has to be decoded for every request; this file is used as it lies on disk, so that a page of
a million samples takes milliseconds, and its memory is the system's file cache. It also holds the
overview, which takes a second to compute. A job publishes the file; one of another version or a
damaged one is made from the score file when it is first asked for.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from api.bounded_cache import BoundedCache
from api.jobs.files import (
    COLUMNS_FILE,
    CONTENTS_FILE,
    SCORES_FILE,
    columns_file,
    open_stored,
)
from api.jobs.kept_features import CONTENT
from api.jobs.store import Job
from api.results.overview import Overview, from_json, make_overview, to_json
from api.settings import Settings
from api.storage.artifacts import Artifacts, save
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import UNREADABLE, map_arrow, write_arrow
from difficulty_service.pages.charts import Scale
from difficulty_service.reports.sample_columns import SampleColumn, SampleColumns, fault_columns
from difficulty_service.scores.file import ScoreFile, read_score_schema, read_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import Decided, ScoredSamples, columns_to_read, to_samples
from difficulty_service.scores.score_columns import FAULT_COLUMN

FORMAT = 12  # version of the layout; a file of another version is made anew
_KEY = b"difficulty-columns"
_ARRAYS = ("labels", "nearest", "margins", "rmd", "percentiles")
_OPTIONAL = ("suspicion", "agnostic")
_TABLES = {"likeliest": np.int32, "p_likeliest": np.float32}  # several numbers a sample


@dataclass(frozen=True)
class ScoreColumns:
    """The scores of a finished job."""

    samples: ScoredSamples  # memory-mapped
    provenance: Provenance
    overview: Overview
    faults: SampleColumns  # as `fault_columns` gives them, memory-mapped
    contents: pa.FixedSizeBinaryArray | None = None  # digests, memory-mapped; None: unknown

    @property
    def round(self) -> int:
        """Number of the round of scores, from 1."""
        return self.provenance.round or 1

    def label_names(self, rows: NDArray[np.int64]) -> list[str | None]:
        """Name of the label of each of some samples; None for one without a label."""
        labels = self.samples.labels[rows].tolist()
        return [None if label < 0 else self.samples.name_of(label) for label in labels]

    def contents_of(self, rows: NDArray[np.int64]) -> list[str | None]:
        """Digest of the content of each of some samples, in hexadecimal digits."""
        if self.contents is None:
            return [None] * len(rows)
        digests = self.contents.take(pa.array(rows)).to_pylist()
        return [None if digest is None else digest.hex() for digest in digests]

    @property
    def scale(self) -> Scale | None:
        """Axis of the histograms of `rmd`; None where the scores do not differ."""
        return self.overview.summary.scale


def load_conversions() -> None:
    """Loads what converts arrays, which would otherwise delay the first request that needs it."""
    pa.array(np.zeros(1))  # pyarrow imports pandas here, where that is installed


def write_columns(path: Path, scores: ScoreFile) -> Path:
    """Writes the file, which appears whole or not at all, and returns its path.

    The score file has the columns of `scores.samples.columns_to_read`.
    """
    samples = to_samples(scores)
    columns: dict[str, pa.Array] = {"ids": samples.ids, "copy_of": samples.copy_of}
    columns |= {name: pa.array(getattr(samples, name)) for name in _ARRAYS}
    optional = {name: getattr(samples, name) for name in _OPTIONAL}
    columns |= {name: pa.array(values) for name, values in optional.items() if values is not None}
    for name, kind in _TABLES.items():
        if (values := getattr(samples, name)) is not None:
            flat = pa.array(values.reshape(-1).astype(kind))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if samples.verified is not None:
        columns["verified"] = pa.array(samples.verified.astype(np.uint8))  # bits cannot be mapped
    faults = fault_columns(scores.table).get(FAULT_COLUMN)
    if faults is not None:
        columns[FAULT_COLUMN] = pa.array(faults.numbers)
    batch = pa.record_batch(columns)
    description = {
        "format": FORMAT,
        "names": list(samples.names.items()),
        "measure": samples.measure,
        "provenance": scores.provenance.to_json(),
        "overview": to_json(make_overview(samples)),
        "faults": [] if faults is None else faults.categories,
    }
    metadata = {_KEY: json.dumps(description).encode()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        write_arrow(temporary, batch.replace_schema_metadata(metadata))
    return path


def map_columns(path: Path) -> ScoreColumns | None:
    """Maps a file that `write_columns` has written; None if none of this version can be read."""
    try:
        batch, is_checked = map_arrow(path)
        description = json.loads((batch.schema.metadata or {})[_KEY])
        if not is_checked or description["format"] != FORMAT:
            return None
        arrays: dict[str, Any] = {
            name: np.asarray(batch[name].to_numpy(zero_copy_only=True))
            for name in (*_ARRAYS, *_OPTIONAL)
            if name in batch.schema.names
        }
        for name in {*_TABLES} & {*batch.schema.names}:
            flat = batch[name].flatten().to_numpy(zero_copy_only=True)
            arrays[name] = flat.reshape(len(batch), -1)
        provenance = Provenance.of(description["provenance"])
        if "verified" in batch.schema.names:
            arrays["verified"] = np.asarray(batch["verified"].to_numpy()).view(np.bool_)
        faults = {}
        if FAULT_COLUMN in batch.schema.names:
            numbers = np.asarray(batch[FAULT_COLUMN].to_numpy(zero_copy_only=True))
            names = tuple(map(str, description["faults"]))
            faults[FAULT_COLUMN] = SampleColumn(FAULT_COLUMN, "category", numbers, categories=names)
        return ScoreColumns(
            ScoredSamples(
                ids=batch["ids"],
                copy_of=batch["copy_of"],
                names={int(label): str(name) for label, name in description["names"]},
                measure=description["measure"],
                decided=Decided.of(provenance),
                boxes=provenance.boxes,
                **arrays,
            ),
            provenance,
            from_json(description["overview"]),
            faults,
        )
    except (*UNREADABLE, LookupError, TypeError):
        return None


MAX_OPEN = 8


class OpenScores:
    """Opens the scores of finished jobs."""

    def __init__(self, settings: Settings, artifacts: Artifacts) -> None:
        self._settings = settings
        self._artifacts = artifacts
        self._open: BoundedCache[str, ScoreColumns] = BoundedCache(MAX_OPEN)

    def get(self, job: Job) -> ScoreColumns:
        """The scores of a succeeded job."""
        return self._open.get(job.id, lambda: self._load(job))

    def _load(self, job: Job) -> ScoreColumns:
        path = columns_file(self._settings, job)
        columns = map_columns(path) or self._published(job, path)
        if columns is None:
            self._write(job, path)
            columns = map_columns(path)
        assert columns is not None  # noqa: S101 - it was just written
        return replace(columns, contents=self._contents(job, path))

    def _contents(self, job: Job, columns: Path) -> pa.FixedSizeBinaryArray | None:
        """What the samples were read from; None where the job has no features."""
        copy = columns.with_suffix(".contents.arrow")
        try:
            return map_arrow(self._artifacts.local_copy(job.key(CONTENTS_FILE), copy))[0][CONTENT]
        except (*UNREADABLE, DamagedFile):
            return None

    def _published(self, job: Job, path: Path) -> ScoreColumns | None:
        """The columns that the job has published, of which a remote storage needs a copy here."""
        path.unlink(missing_ok=True)  # one of another version, or a damaged one
        try:
            return map_columns(self._artifacts.local_copy(job.key(COLUMNS_FILE), path))
        except FileNotFoundError:
            return None

    def _write(self, job: Job, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            local = Path(folder) / SCORES_FILE
            save(open_stored(self._artifacts, job, SCORES_FILE), local)
            columns = columns_to_read(read_score_schema(local).names)
            write_columns(path, read_scores(local, columns))
        # The whole table was in memory once; what is left of it is of no use.
        pa.default_memory_pool().release_unused()
