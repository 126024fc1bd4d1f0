"""What is kept of a finished job."""

from difficulty_service.bodies.jobs import JobResult


class StoredResult(JobResult):
    """What the database keeps of a finished job; the folder is for this service alone."""

    prefix: str
    """Folder of the files of the attempt that succeeded"""
    stored_bytes: int | None = None
    """Bytes of these files; None until counted"""
