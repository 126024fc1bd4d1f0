"""The scores of finished jobs, kept open for the pages.

A job publishes the columns that the pages read. Those of another version and damaged ones are made
from the score file when they are first asked for.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from api.bounded_cache import BoundedCache
from api.jobs.files import COLUMNS_FILE, SCORES_FILE, columns_file
from api.jobs.rows import Job
from api.jobs.stored_files import open_stored
from api.results.overview import Overview
from api.results.score_columns import ScoreColumns, map_columns, write_columns
from api.settings import Settings
from api.storage.artifacts import Artifacts, save
from difficulty_service.reporting.samples import columns_to_read
from difficulty_service.score_file import read_score_schema, read_scores

MAX_OPEN = 8


class OpenScores:
    """Opens the scores of finished jobs.

    Args:
        settings: Settings with the folder for columns that are not in a folder of this machine.
        artifacts: Results of the jobs.
    """

    def __init__(self, settings: Settings, artifacts: Artifacts) -> None:
        self._settings = settings
        self._artifacts = artifacts
        self._open: BoundedCache[str, ScoreColumns] = BoundedCache(MAX_OPEN)

    def get(self, job: Job) -> ScoreColumns:
        """The scores of a succeeded job.

        Raises:
            Problem: Its files are gone or damaged.
            ScoreFileError: Its score file cannot be read.
        """
        return self._open.get(job.id, lambda: self._load(job))

    def overview(self, job: Job) -> Overview:
        """The facts of the whole dataset of a succeeded job; errors as for `get`."""
        return self.get(job).overview

    def _load(self, job: Job) -> ScoreColumns:
        path = columns_file(self._settings, job)
        columns = map_columns(path) or self._published(job, path)
        if columns is None:
            self._write(job, path)
            columns = map_columns(path)
        assert columns is not None  # noqa: S101 - it was just written
        return columns

    def _published(self, job: Job, path: Path) -> ScoreColumns | None:
        """The columns that the job has published, of which a remote storage needs a copy here."""
        assert job.result is not None  # noqa: S101 - because it succeeded
        key = f"{job.result.prefix}/{COLUMNS_FILE}"
        if (local := self._artifacts.local_path(key)) is not None:
            return map_columns(local)
        try:
            save(self._artifacts.open(key), path)
        except FileNotFoundError:
            return None
        return map_columns(path)

    def _write(self, job: Job, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            local = Path(folder) / SCORES_FILE
            save(open_stored(self._artifacts, job, SCORES_FILE), local)
            columns = columns_to_read(read_score_schema(local).names)
            write_columns(path, read_scores(local, columns))
        # The whole table was in memory once; what is left of it is of no use.
        pa.default_memory_pool().release_unused()
