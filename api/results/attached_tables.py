"""Attaches tables to finished jobs, those that people send and the dataset's own; removes them."""

from pathlib import Path

import pyarrow as pa
import structlog
from sqlalchemy import Engine

from api.http.problems import unreadable
from api.jobs.columns import AttachedTable, attach, detach
from api.jobs.dataset import find_dataset
from api.jobs.files import count_result, joined_copy, joined_prefix
from api.jobs.joined_table import JOINED_FILE, JoinedTable
from api.jobs.store import Job
from api.results.score_columns import OpenScores
from api.results.table_joining import IDS_FILE, DatasetTable, SentTable, Table, joiner
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.storage.tables import new_id
from difficulty_service.base.apart import Apart, Limits, ProcessEnded, TookTooLong
from difficulty_service.base.tables import write_arrow

OTHER_BYTES = 1 << 30
KEPT_BYTES = 256 << 20  # memory above which the process is replaced once its table is joined
COPIES = 4
"""How often what is read of a table may be in memory at once."""


class AttachedTables:
    """Attaches tables to finished jobs, and removes them."""

    def __init__(
        self, engine: Engine, settings: Settings, artifacts: Artifacts, open_scores: OpenScores
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._artifacts = artifacts
        self._open_scores = open_scores
        largest = settings.max_table_bytes + settings.max_text_bytes
        limits = Limits(OTHER_BYTES + COPIES * largest, KEPT_BYTES)
        self._apart = Apart(joiner, limits=limits)

    def attach_dataset(self, job: Job, columns: tuple[str, ...], folder: Path) -> AttachedTable:
        """Joins columns of the dataset of a job, as it is now, as `attach` does.

        Raises:
            Problem: It is there no longer.
        """
        wanted, settings = job.wanted, self._settings
        location = find_dataset(wanted.dataset, job.owner, settings, self._engine)
        fingerprint = self._open_scores.get(job).provenance.fingerprint
        return self.attach(job, DatasetTable(wanted, location, fingerprint, columns), folder)

    def attach(self, job: Job, table: Table, folder: Path) -> AttachedTable:
        """Joins a table, which is in a folder if it was sent, in place of one of the same name.

        Raises:
            Problem: It cannot be joined, or the job has no room for it.
            DifficultyError: The same, of the table itself.
        """
        scores = self._open_scores.get(job)
        write_arrow(folder / IDS_FILE, pa.record_batch({"ids": scores.samples.ids}))
        recorded = scores.provenance.dataset_options
        id_column = None if recorded is None else recorded.id_column
        joined = self._join(job, table, folder, id_column)
        attached = AttachedTable(table.name, new_id(), joined)
        prefix = joined_prefix(job, attached.version)
        self._artifacts.put(folder / JOINED_FILE, f"{prefix}/{JOINED_FILE}")
        try:
            attached, replaced = attach(self._engine, job.id, attached)
        except BaseException:
            self._artifacts.delete_prefix(prefix)
            raise
        self._delete(job, None if replaced is None else replaced.version)
        count_result(self._engine, self._artifacts, job)
        return attached

    def detach(self, job: Job, name: str) -> bool:
        """Removes a table; false where there is none of this name."""
        version = detach(self._engine, job.id, name)
        self._delete(job, version)
        count_result(self._engine, self._artifacts, job)
        return version is not None

    def close(self) -> None:
        """Ends the process, once its table is joined."""
        self._apart.close()

    def _join(self, job: Job, table: Table, folder: Path, id_column: str | None) -> JoinedTable:
        seconds = self._settings.upload_check_seconds
        try:
            return self._apart.call_within(seconds, folder, table, id_column, self._settings)
        except ProcessEnded as error:
            took = isinstance(error, TookTooLong)
            reason = f"it took longer than {seconds:g} s" if took else "it ended the process"
            structlog.get_logger().warning("table-not-joined", job=job.id, reason=reason)
            raise unreadable(
                f"{table.name} cannot be joined: reading it "
                + (reason.removeprefix("it ") if took else "ends the process that does"),
                "write it again with fewer rows and columns, as plain numbers, dates and texts"
                if isinstance(table, SentTable)
                else "name a few of its columns",
            ) from None

    def _delete(self, job: Job, version: str | None) -> None:
        """Deletes the file of a table; one that cannot be deleted is deleted with its job."""
        if version is None:
            return
        try:
            self._artifacts.delete_prefix(joined_prefix(job, version))
            joined_copy(self._settings, job, version).unlink(missing_ok=True)
        except OSError as error:
            log = structlog.get_logger().bind(job=job.id)
            log.warning("table-not-deleted", reason=type(error).__name__)
