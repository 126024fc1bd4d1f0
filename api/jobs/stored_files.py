"""Files of finished jobs, which are checked before their first byte is used."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from api.http.problems import Problem
from api.jobs.files import SCORES_FILE
from api.jobs.rows import Job
from api.storage.artifacts import Artifacts
from difficulty_service.files.checked_parquet import UNREADABLE, require_checksum
from difficulty_service.files.checksum import DamagedFile, verify


def open_stored(artifacts: Artifacts, job: Job, name: str) -> pa.NativeFile:
    """Opens a file of a succeeded job; its bytes are those that the job wrote.

    A file is checked when it is first opened, and again once its size or time changes: scores
    against the SHA-256 that the job recorded, others against the checksum inside them.

    Args:
        artifacts: Results of the jobs.
        job: A succeeded job.
        name: Name of the file.

    Raises:
        Problem: The file is gone or damaged.
    """
    assert job.result is not None  # noqa: S101 - because it succeeded
    recorded = job.result.scores_sha256 if name == SCORES_FILE else None

    def check(file: pa.NativeFile) -> None:
        verify(file)
        file.seek(0)
        if recorded and hashlib.file_digest(file, "sha256").hexdigest() != recorded:
            raise DamagedFile("its SHA-256 is not the recorded one")

    try:
        return artifacts.open_checked(f"{job.result.prefix}/{name}", check)
    except FileNotFoundError:
        raise Problem(
            410, "gone", f"the files of job {job.id} are gone", "submit the dataset again"
        ) from None
    except DamagedFile as error:
        raise damaged(job, name) from error


@contextmanager
def open_stored_parquet(artifacts: Artifacts, job: Job, name: str) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file of a succeeded job; errors as for `open_stored`."""
    with open_stored(artifacts, job, name) as opened:
        try:
            file = pq.ParquetFile(opened)
            require_checksum(opened, file.metadata)
        except UNREADABLE as error:
            raise damaged(job, name) from error
        with file:
            yield file


def damaged(job: Job, name: str) -> Problem:
    """The problem that a file of a job is not as it was written."""
    return Problem(
        500,
        "damaged",
        f"{name} of job {job.id} was damaged on the server",
        "submit the dataset again, or have the file restored from a backup",
    )
