"""The table of regions without a box that a job keeps."""

from api.jobs.files import MISSING_FILE, open_stored_parquet
from api.jobs.store import Job
from api.storage.artifacts import Artifacts
from difficulty_service.bodies.missing_boxes import MissingResult
from difficulty_service.bodies.results import MissingPublic, RegionPublic

PICTURE = "picture"
"""Column with a picture of each region, WebP; null where its image could no longer be read."""

COUNTS = b"counts"
"""Key of the table's metadata under which lies what was searched, as JSON."""


def read_missing(artifacts: Artifacts, job: Job) -> MissingPublic:
    """What a succeeded job that looked for missing boxes found.

    Raises:
        Problem: The file is gone or damaged.
    """
    with open_stored_parquet(artifacts, job, MISSING_FILE) as file:
        counts = MissingResult.model_validate_json(file.schema_arrow.metadata[COUNTS])
        table = file.read()
    has_picture = table[PICTURE].is_valid().to_pylist()
    rows = table.drop_columns([PICTURE]).to_pylist()
    found = tuple(
        RegionPublic(**row, picture=f"/v1/jobs/{job.id}/missing/{number}.webp" if shown else None)
        for number, (row, shown) in enumerate(zip(rows, has_picture, strict=True))
    )
    return MissingPublic(**counts.model_dump(), found=found)


def read_region_picture(artifacts: Artifacts, job: Job, number: int) -> bytes | None:
    """The picture of a region by its place in the list; None where there is none."""
    with open_stored_parquet(artifacts, job, MISSING_FILE) as file:
        pictures = file.read([PICTURE])[PICTURE]
    picture: bytes | None = pictures[number].as_py() if number < len(pictures) else None
    return picture
