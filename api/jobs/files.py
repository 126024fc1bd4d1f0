"""The files of a job: names, work folder, checks before their first byte is used, and deletion.

A finished job is first hidden from clients, then without files, then without a row. Whatever ends a
deletion early, the row that is left leads `finish_deletions` to what remains. A request that was
being answered meanwhile may add a file afterwards, such as a thumbnail; `delete_left_files` deletes
the folders of jobs that are gone.
"""

import fcntl
import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from sqlalchemy import Engine

from api.http.problems import Problem, gone
from api.jobs.joined_table import JOINED_FILE
from api.jobs.store import (
    Job,
    begin_deletion,
    end_deletion,
    get_job,
    jobs_to_delete,
    set_stored_bytes,
    uncounted_jobs,
)
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.base.checksums import DamagedFile, verify
from difficulty_service.base.tables import UNREADABLE, require_checksum
from difficulty_service.bodies.jobs import FINAL_STATES

SCORES_FILE = "scores.parquet"
GAUSSIANS_FILE = "gaussians.safetensors"
ERRORS_FILE = "errors.parquet"
MAP_FILE = "map.parquet"
TAGS_FILE = "tags.parquet"  # only of jobs that judged tags
MISSING_FILE = "missing.parquet"  # only of jobs that looked for missing boxes
TSNE_FOLDER = "tsne"
TSNE_FILE = f"{TSNE_FOLDER}/map.parquet"  # added after the job, when its map is first looked at
COLUMNS_FILE = "columns.arrow"
VECTORS_FILE = "vectors.npy"
FEATURES_FILE = "features.npy"
KIND_FILE = "features.json"  # what made them
CONTENTS_FILE = "contents.arrow"  # what they were made of
COMPARISONS_FOLDER = "comparisons"  # with other jobs, added after this one when they are asked for
JOBS_PREFIX = "jobs"
LOCK_FILE = "lock"
COUNTED_AT_ONCE = 1000
LONGEST_SCRATCH = 7 * 86400.0  # seconds for which a table may arrive and be joined


def job_prefix(job_id: str) -> str:
    """Key of the folder with the files of all attempts of a job."""
    return f"{JOBS_PREFIX}/{job_id}"


def attempt_prefix(job: Job) -> str:
    """Key of the folder with the files of the current attempt."""
    return f"{job_prefix(job.id)}/a{job.attempt}"


def thumbnail_folder(settings: Settings, job_id: str) -> Path:
    """Folder for the thumbnails of a job."""
    return settings.data_dir / "thumbnails" / job_id


def columns_file(settings: Settings, job: Job) -> Path:
    """Copy of COLUMNS_FILE on the server, which its pages read."""
    digest = "" if job.result is None else job.result.scores_sha256[:16]
    return columns_folder(settings, job.id) / f"{digest}.arrow"


def vectors_file(settings: Settings, job: Job) -> Path:
    """Local copy of the vectors by which similar images of a finished job are found."""
    return columns_file(settings, job).with_suffix(".npy")


def words_file(settings: Settings, job: Job, kind: bytes) -> Path:
    """Features of a finished job in the space that images share with words, by the KIND_FILE."""
    digest = hashlib.sha256(kind).hexdigest()[:16]
    return columns_file(settings, job).with_suffix(f".{digest}.npy")


def columns_folder(settings: Settings, job_id: str) -> Path:
    """Folder for the columns of a job's scores, its vectors, and its features beside words."""
    return settings.data_dir / "columns" / job_id


def joined_prefix(job: Job, version: str) -> str:
    """Key of the folder with what was joined of a version of a table of a finished job."""
    return job.key(f"tables/{version}")


def joined_copy(settings: Settings, job: Job, version: str) -> Path:
    """Local copy of what was joined, where the artifacts are in another storage."""
    return columns_folder(settings, job.id) / f"{version}-{JOINED_FILE}"


def scratch_folder(settings: Settings) -> Path:
    """Folder for files that are needed once; what a killed server leaves there is deleted later."""
    return settings.data_dir / "scratch"


@contextmanager
def scratch(settings: Settings) -> Iterator[Path]:
    """A folder for files that are needed once, which is deleted at the end of the context."""
    parent = scratch_folder(settings).absolute()
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def gaussians_folder(settings: Settings) -> Path:
    """Folder for local copies of the Gaussians of jobs, each below its key."""
    return settings.data_dir / "gaussians"


def local_folders(settings: Settings, job_id: str) -> list[Path]:
    """Every folder outside the artifacts that holds files of one job."""
    return [
        settings.work_dir / job_id,
        thumbnail_folder(settings, job_id),
        columns_folder(settings, job_id),
        gaussians_folder(settings) / job_prefix(job_id),
    ]


def delete_job_files(settings: Settings, artifacts: Artifacts, job_id: str) -> None:
    """Deletes everything that a job has published, is working on or has left for later jobs."""
    for features in settings.feature_cache_dir.glob(f"*/{job_id}-*.arrow"):
        features.unlink(missing_ok=True)
    for folder in local_folders(settings, job_id):
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
    artifacts.delete_prefix(job_prefix(job_id))


def delete_other_attempts(artifacts: Artifacts, job: Job) -> None:
    """Deletes the files of unfinished attempts."""
    for folder in artifacts.list_folders(job_prefix(job.id)):
        if folder != attempt_prefix(job):
            artifacts.delete_prefix(folder)


@contextmanager
def work_folder(work_dir: Path, job_id: str, attempt: int) -> Iterator[Path]:
    """The work folder of a job, for the exclusive use of this attempt.

    An abandoned attempt may still be running: its worker was frozen, or had lost the connection to
    the database. As long as it holds the folder, the next attempt gets a new one.
    """
    folder = work_dir / job_id
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            # The kernel releases the lock when the process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            folder /= f"a{attempt}"
            folder.mkdir(exist_ok=True)
        yield folder


def delete_work(work_dir: Path, job_id: str) -> None:
    """Deletes the work folder of a job, if it exists."""
    # An abandoned attempt may still be writing there; a later clean-up deletes what it adds.
    shutil.rmtree(work_dir / job_id, ignore_errors=True)


def open_stored(artifacts: Artifacts, job: Job, name: str) -> pa.NativeFile:
    """Opens a file of a succeeded job; its bytes are those that the job wrote.

    A file is checked when it is first opened, and again once its size or time changes: scores
    against the SHA-256 that the job recorded, others against the checksum inside them.

    Raises a `Problem` where the file is gone or damaged.
    """
    assert job.result is not None  # noqa: S101 - because it succeeded
    recorded = job.result.scores_sha256 if name == SCORES_FILE else None

    def check(file: pa.NativeFile) -> None:
        verify(file)
        file.seek(0)
        if recorded and hashlib.file_digest(file, "sha256").hexdigest() != recorded:
            raise DamagedFile("its SHA-256 is not the recorded one")

    try:
        return artifacts.open_checked(job.key(name), check)
    except FileNotFoundError:
        raise files_gone(job) from None
    except DamagedFile as error:
        raise damaged(job, name) from error


def files_gone(job: Job) -> Problem:
    """The problem that the files of a job are not there any more."""
    return gone(f"the files of job {job.id} are gone", "submit the dataset again")


@contextmanager
def noticing_deletion(job: Job) -> Iterator[None]:
    """Within the context, a file that is gone means that the job is being deleted."""
    try:
        yield
    except FileNotFoundError:
        raise files_gone(job) from None


@contextmanager
def open_stored_parquet(artifacts: Artifacts, job: Job, name: str) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file of a succeeded job, as `open_stored` does."""
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


def delete_finished(
    engine: Engine, settings: Settings, artifacts: Artifacts, owner: str | None, job_id: str
) -> bool:
    """Deletes a finished job with its files; False where there is none of this owner.

    Owner None stands for any. Files that cannot be deleted now are left to `finish_deletions`.
    """
    if not begin_deletion(engine, owner, job_id):
        return False
    _finish(engine, settings, artifacts, job_id)
    return True


def finish_deletions(engine: Engine, settings: Settings, artifacts: Artifacts) -> int:
    """Finishes the deletions that were begun; returns the number of those that are finished."""
    ids = jobs_to_delete(engine)
    return sum(_finish(engine, settings, artifacts, job_id) for job_id in ids)


def delete_left_files(engine: Engine, settings: Settings, artifacts: Artifacts) -> int:
    """Deletes folders whose job is gone, and the work of finished jobs; returns their number.

    The row of a job exists before its first file, so no file of a new job is deleted.
    """
    deleted, ids = 0, set[str]()
    for folder in local_folders(settings, "any"):
        if folder.parent.is_dir():
            ids |= {path.name for path in folder.parent.iterdir() if path.is_dir()}
    for job_id in sorted(ids):
        job = get_job(engine, None, job_id)
        if job is None:
            deleted += any(folder.exists() for folder in local_folders(settings, job_id))
            for folder in local_folders(settings, job_id):
                shutil.rmtree(folder, ignore_errors=True)
        elif job.state in FINAL_STATES and (settings.work_dir / job_id).exists():
            delete_work(settings.work_dir, job_id)
            deleted += 1
    for prefix in artifacts.list_folders(JOBS_PREFIX):
        if get_job(engine, None, prefix.removeprefix(f"{JOBS_PREFIX}/")) is None:
            artifacts.delete_prefix(prefix)
            deleted += 1
    return deleted + _delete_left_files(scratch_folder(settings))


def count_results(engine: Engine, artifacts: Artifacts) -> int:
    """Counts the bytes of results that are not counted yet; returns the number of jobs."""
    counted = 0
    while jobs := uncounted_jobs(engine, COUNTED_AT_ONCE):
        for job in jobs:
            count_result(engine, artifacts, job)
        counted += len(jobs)
    return counted


def count_result(engine: Engine, artifacts: Artifacts, job: Job) -> None:
    """Counts the bytes of the files of a job by the files themselves."""
    set_stored_bytes(engine, job.id, artifacts.total_bytes(job_prefix(job.id)))


def _delete_left_files(folder: Path) -> int:
    """Deletes what killed servers left in their scratch folders; returns the number of these."""
    deleted = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):  # another process deletes them, too
            if path.stat().st_mtime < time.time() - LONGEST_SCRATCH:
                shutil.rmtree(path, ignore_errors=True)
                deleted += 1
    return deleted


def _finish(engine: Engine, settings: Settings, artifacts: Artifacts, job_id: str) -> bool:
    try:
        delete_job_files(settings, artifacts, job_id)
    except OSError as error:
        structlog.get_logger().warning(
            "deletion-unfinished",
            job=job_id,
            reason=type(error).__name__,
            consequence="tried again",
        )
        return False
    end_deletion(engine, job_id)
    return True
