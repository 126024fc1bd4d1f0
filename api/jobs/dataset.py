"""The dataset that a job asks for: where it is here, and what it is called outside."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Engine

from api.http.problems import Problem
from api.jobs.dataset_roots import resolve_dataset, root_boundary
from api.jobs.rows import Job
from api.settings import Settings
from api.uploads.files import upload_path
from api.uploads.store import get_upload, touch
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.boundary import Boundary
from difficulty_service.datasets.sample import Dataset, DatasetOptions

READING = ("split", "image_column", "label_column", "id_column", "limit")
"""Fields of a request that say how to read the dataset."""

LARGEST_SHARD = 4096
SMALLEST_SHARD = 16
USUAL_SHARDS = 64


@dataclass(frozen=True)
class Place:
    """Where a dataset is.

    Attributes:
        location: On this server; not for anybody outside.
        name: For those outside.
        boundary: What reading it may not leave.
    """

    location: str
    name: str
    boundary: Boundary


def find_place(job: Job, settings: Settings, engine: Engine) -> Place:
    """Where the dataset of a job is.

    Raises:
        Problem: The root or the upload is not there, or the path leads out of its root.
    """
    wanted: Mapping[str, Any] = job.request["dataset"]
    upload_id = wanted.get("upload")
    if upload_id is None:
        root, path = wanted["root"], wanted["path"]
        location = resolve_dataset(settings, root, path)
        return Place(location, f"{root}/{path}", root_boundary(settings, root))
    upload = get_upload(engine, job.owner, upload_id)
    if upload is None or upload.state != "complete":
        raise Problem(
            410,
            "gone",
            f"upload {upload_id!r} is not there any more, or not complete",
            "upload the dataset again and submit a new job",
            field="dataset.upload",
        )
    touch(engine, upload_id)
    path = upload_path(settings, upload_id, upload.format)
    # A table that was sent may hold images, but not point at files or addresses of ours.
    return Place(str(path), f"upload {upload_id}", Boundary(str(path.resolve())))


def open_job_dataset(job: Job, place: Place) -> Dataset:
    """The dataset of a job, under its name for those outside and in shards that suit its size.

    Raises:
        DatasetError: It cannot be read.
    """
    reading: dict[str, Any] = {name: job.request.get(name) for name in READING}
    options = DatasetOptions(**reading, boundary=place.boundary)
    dataset = open_dataset(place.location, options)
    shard_size = suitable_shard_size(len(dataset.labels))
    return replace(dataset, location=place.name, shard_size=shard_size)


def suitable_shard_size(num_samples: int) -> int:
    """Small enough that an attempt that ends early loses little, large enough for full batches."""
    return min(LARGEST_SHARD, max(SMALLEST_SHARD, -(-num_samples // USUAL_SHARDS)))
