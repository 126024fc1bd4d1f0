"""Folders where jobs keep what they have under way, so that a next attempt can go on with it."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = "lock"


@contextmanager
def work_folder(work_dir: Path, job_id: str, attempt: int) -> Iterator[Path]:
    """The folder of a job, for this attempt alone.

    An attempt that was given up may still be running: its worker was frozen, or out of reach of
    the database. As long as it has the folder, the next attempt gets a new one.

    Args:
        work_dir: Of all jobs.
        job_id: Of this one.
        attempt: Of this job.
    """
    folder = work_dir / job_id
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            # The kernel lets go of it when the process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            folder /= f"a{attempt}"
            folder.mkdir(exist_ok=True)
        yield folder


def delete_work(work_dir: Path, job_id: str) -> None:
    """Deletes the folder of a job; nothing where there is none."""
    # An attempt that was given up may be writing there; what it adds goes with the next sweep.
    shutil.rmtree(work_dir / job_id, ignore_errors=True)


def jobs_with_work(work_dir: Path) -> list[str]:
    """Ids of the jobs that have a folder, sorted."""
    if not work_dir.is_dir():
        return []
    return sorted(path.name for path in work_dir.iterdir() if path.is_dir())
