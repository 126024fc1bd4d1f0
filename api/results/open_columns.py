"""The columns beside the scores of jobs: where their files are, and what is open of them.

The faults of images are a column of every job whose scores tell how the images look.

An explorer has one file with the samples of all its rounds, each of which is a job with some of
them. A job of a service has a file for each table that is attached to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow.compute as pc
import structlog
from sqlalchemy import Engine

from api.bounded_cache import BoundedCache
from api.jobs.columns import attached_tables
from api.jobs.files import joined_copy, joined_prefix
from api.jobs.joined_table import JOINED_FILE
from api.jobs.store import Job
from api.results.joined_columns import joined_file, map_joined
from api.results.score_columns import OpenScores
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.tables import UNREADABLE
from difficulty_service.reports.joined_tables import free_name
from difficulty_service.reports.sample_columns import SampleColumn, SampleColumns

MAX_OPEN = 16


@dataclass(frozen=True)
class ColumnFile:
    """A file that `write_joined` has written."""

    version: str  # tells it from every other one of the same job; the content never changes
    title: str  # what the table is called whose columns it has


class ColumnFiles(Protocol):
    """Where the columns of jobs are."""

    def of(self, job: Job) -> Sequence[ColumnFile]:
        """The files with columns of a succeeded job, in their order."""

    def path(self, job: Job, file: ColumnFile) -> Path:
        """Where such a file is on this machine.

        Raises:
            OSError: It cannot be had from where it is stored.
        """


class ExplorerColumns:
    """The columns of an explorer, which are joined before it starts."""

    def __init__(self, settings: Settings) -> None:
        self._path = joined_file(settings)

    def of(self, _job: Job) -> Sequence[ColumnFile]:
        """One file, or none; it has the samples of every round."""
        return [ColumnFile("", "table")] if self._path.exists() else []

    def path(self, _job: Job, _file: ColumnFile) -> Path:
        """Where the file is."""
        return self._path


class AttachedColumns:
    """The columns of the tables that are attached to the jobs of a service."""

    def __init__(self, engine: Engine, settings: Settings, artifacts: Artifacts) -> None:
        self._engine = engine
        self._settings = settings
        self._artifacts = artifacts

    def of(self, job: Job) -> Sequence[ColumnFile]:
        """A file for each table."""
        tables = attached_tables(self._engine, job.id)
        return [ColumnFile(table.version, table.name) for table in tables]

    def path(self, job: Job, file: ColumnFile) -> Path:
        """Where the file is; of a remote storage, a copy is made."""
        key = f"{joined_prefix(job, file.version)}/{JOINED_FILE}"
        return self._artifacts.local_copy(key, joined_copy(self._settings, job, file.version))


class OpenColumns:
    """Gives jobs the columns beside their scores, and keeps those used last."""

    def __init__(self, files: ColumnFiles, open_scores: OpenScores) -> None:
        self._files = files
        self._open_scores = open_scores
        self._open: BoundedCache[tuple[str, str], SampleColumns] = BoundedCache(MAX_OPEN)

    def get(self, job: Job) -> SampleColumns:
        """The columns of the samples of a succeeded job; empty where there are none.

        One that has the name of an earlier column is called after its table, too.
        """
        columns: dict[str, SampleColumn] = {**self._open_scores.get(job).faults}
        for file in self._files.of(job):
            for column in self._columns_of(job, file).values():
                name = free_name(column.name, file.title, columns)
                columns[name] = column if name == column.name else replace(column, name=name)
        return columns

    def _columns_of(self, job: Job, file: ColumnFile) -> SampleColumns:
        try:
            return self._open.get((job.id, file.version), lambda: self._load(job, file))
        except (DamagedFile, *UNREADABLE) as error:
            known = {"job": job.id, "table": file.title}
            structlog.get_logger().error("columns-damaged", reason=str(error), **known)
            return {}

    def _load(self, job: Job, file: ColumnFile) -> SampleColumns:
        ids, columns = map_joined(self._files.path(job, file))
        wanted = self._open_scores.get(job).samples.ids
        if wanted.equals(ids):
            return columns
        rows = pc.index_in(wanted, value_set=ids).fill_null(-1).to_numpy()
        return {name: column.take(rows) for name, column in columns.items()}
