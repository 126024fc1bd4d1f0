"""The dataset of a job: its location on this server and its name for clients."""

from collections.abc import Mapping, Sequence
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
from difficulty_service.datasets.sample import Dataset, DatasetOptions, TableLimits
from difficulty_service.errors import DatasetError, Setting
from difficulty_service.options import ReadingOptions

MAX_NAMES_LENGTH = 2_000_000
"""Maximum number of characters of all class names, which a row of the database holds."""

LARGEST_SHARD = 4096
SMALLEST_SHARD = 16
TARGET_SHARDS = 64


@dataclass(frozen=True)
class DatasetLocation:
    """Where the dataset of a job is.

    Attributes:
        uri: Path or URI on this server, which clients must not see.
        name: Name that clients know it by.
        boundary: Folder that reading it must not leave.
    """

    uri: str
    name: str
    boundary: Boundary


def find_dataset(job: Job, settings: Settings, engine: Engine) -> DatasetLocation:
    """Location of the dataset of a job.

    Raises:
        Problem: The root or the upload does not exist, or the path leads out of its root.
    """
    dataset: Mapping[str, Any] = job.request["dataset"]
    upload_id = dataset.get("upload")
    if upload_id is None:
        root, path = dataset["root"], dataset["path"]
        uri = resolve_dataset(settings, root, path)
        return DatasetLocation(uri, f"{root}/{path}", root_boundary(settings, root))
    upload = get_upload(engine, job.owner, upload_id)
    if upload is None or upload.state != "complete":
        raise Problem(
            410,
            "gone",
            f"upload {upload_id!r} no longer exists, or is not complete",
            "upload the dataset again and submit a new job",
            field="dataset.upload",
        )
    touch(engine, upload_id)
    path = upload_path(settings, upload_id, upload.format)
    # An uploaded table may hold images, but not refer to files or addresses of this server.
    return DatasetLocation(str(path), f"upload {upload_id}", Boundary(str(path.resolve())))


def open_job_dataset(job: Job, location: DatasetLocation, settings: Settings) -> Dataset:
    """The dataset of a job, under its name for clients and in shards that suit its size.

    Raises:
        DatasetError: It cannot be read, or is larger than the settings allow.
    """
    reading = job.options.model_dump(include=set(ReadingOptions.model_fields))
    limits = TableLimits(settings.max_rows, settings.max_text_bytes)
    options = DatasetOptions(**reading, boundary=location.boundary, limits=limits)
    dataset = open_dataset(location.uri, options)
    _check_classes(dataset.class_names, settings.max_classes)
    shard_size = suitable_shard_size(len(dataset.labels))
    return replace(dataset, location=location.name, shard_size=shard_size)


def _check_classes(class_names: Sequence[str], max_classes: int) -> None:
    """Refuses more classes than a worker has the memory, or a row of the database the room, for.

    Raises:
        DatasetError: There are too many, or their names are too long together.
    """
    if len(class_names) > max_classes:
        raise DatasetError(
            f"the dataset has {len(class_names):,} classes, the maximum is {max_classes:,}; "
            "integer labels are class indices, so the largest one counts",
            "renumber the labels from 0, or raise ",
            Setting("max_classes"),
        )
    length = sum(map(len, class_names))
    if length > MAX_NAMES_LENGTH:
        raise DatasetError(
            f"the names of the classes have {length:,} characters together, the maximum is "
            f"{MAX_NAMES_LENGTH:,}",
            "shorten them",
        )


def suitable_shard_size(num_samples: int) -> int:
    """Shard size that loses little when an attempt ends early, yet fills whole batches."""
    return min(LARGEST_SHARD, max(SMALLEST_SHARD, -(-num_samples // TARGET_SHARDS)))
