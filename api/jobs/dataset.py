"""The dataset of a job: its location below a configured root or in an upload, and its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from sqlalchemy import Engine

from api.http.problems import gone, invalid
from api.jobs.remote_images import fetch_image, fetch_limits
from api.settings import Settings
from api.uploads.store import get_upload, touch, upload_path
from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.bodies.jobs import JobDataset, JobRequest
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions, TableLimits
from difficulty_service.datasets.storage import LITERAL, Boundary, boundary_at, is_uri
from difficulty_service.datasets.tags import TagTable
from difficulty_service.datasets.tags.decisions import class_names
from difficulty_service.scoring.given_tags import open_given_tags

MAX_DECODINGS = 5  # nested percent-encoding beyond this is refused
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")


def resolve_dataset(settings: Settings, root: str, path: str) -> str:
    """Location of a dataset that a request names, for `open_dataset`; clients must not see it.

    The path has its parts separated by `/`; it may have wildcards, and "" is the root itself. It is
    refused where it could lead out of the root. `root_boundary` keeps links and URIs inside the
    dataset from doing so.
    """
    location = _root(settings, root)
    decoded = _decode(path)
    parts = PurePosixPath(decoded).parts
    is_unsafe = (
        _UNSAFE.search(decoded) is not None
        or decoded.startswith(("/", "~"))
        or ".." in parts
        or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", decoded) is not None
    )
    # The path that the storage decodes must be the one that was checked here.
    if is_unsafe or (is_uri(location) and decoded != path) or ("?" in path and is_uri(location)):
        raise invalid(
            f"the path {path[:200]!r} could lead out of the root {root!r}",
            "give a relative path below the root, without `..`, schemes, backslashes or encoding",
            field="dataset.path",
        )
    below = PurePosixPath(path).parts
    if not is_uri(location):
        return "/".join([location.rstrip("/"), *below])
    # The URI of a root may have a query, such as its server; requests must not add to it.
    folder, question_mark, query = location.partition("?")
    quoted = [quote(part, safe=LITERAL) for part in below]
    return "/".join([folder.rstrip("/"), *quoted]) + question_mark + query


def root_boundary(settings: Settings, root: str) -> Boundary:
    """Boundary that reading a dataset of this root must not leave."""
    fetch = partial(fetch_image, limits=fetch_limits(settings)) if settings.remote_images else None
    return boundary_at(_root(settings, root), fetch)


def _root(settings: Settings, name: str) -> str:
    if name not in settings.roots:
        known = ", ".join(sorted(settings.roots)) or "none"
        raise invalid(
            f"there is no root {name[:100]!r}; the roots are: {known}",
            "name one of them, or have the operator add it to DIFFICULTY_ROOTS",
            field="dataset.root",
        )
    return settings.roots[name]


def _decode(path: str) -> str:
    """The path with every layer of percent-encoding removed."""
    for _ in range(MAX_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            return path
        path = decoded
    return "../"  # refused: that many layers hide something


MAX_NAMES_LENGTH = 2_000_000
"""Maximum number of characters of all class names, which a row of the database holds."""


@dataclass(frozen=True)
class DatasetLocation:
    """Where the dataset of a job is."""

    uri: str  # path or URI on this server, which clients must not see
    name: str  # that clients know it by
    boundary: Boundary  # that reading it must not leave


def find_dataset(
    dataset: JobDataset, owner: str, settings: Settings, engine: Engine
) -> DatasetLocation:
    """Location of the dataset of a job."""
    if not dataset.upload:
        uri = resolve_dataset(settings, dataset.root, dataset.path)
        boundary = root_boundary(settings, dataset.root)
        return DatasetLocation(uri, f"{dataset.root}/{dataset.path}", boundary)
    upload = get_upload(engine, owner, dataset.upload)
    if upload is None or upload.state != "complete":
        raise gone(
            f"upload {dataset.upload!r} no longer exists, or is not complete",
            "upload the dataset again and submit a new job",
            field="dataset.upload",
        )
    touch(engine, dataset.upload)
    path = upload_path(settings, dataset.upload, upload.format)
    # An uploaded table may hold images, but not refer to files or addresses of this server.
    return DatasetLocation(str(path), f"upload {dataset.upload}", Boundary(str(path.resolve())))


def open_job_dataset(wanted: JobRequest, location: DatasetLocation, settings: Settings) -> Dataset:
    """The dataset of a job, under its name for clients; in shards as for the command line."""
    dataset = open_dataset(location.uri, _reading(wanted, location, settings))
    # A worker has the memory, and a row of the database the room, for so many.
    if (number := len(dataset.class_names)) > settings.max_classes:
        raise DatasetError(
            f"the dataset has {number:,} classes, the maximum is {settings.max_classes:,}; "
            "integer labels are class indices, so the largest one counts",
            "renumber the labels from 0, or raise ",
            Setting("max_classes"),
        )
    _require_short(dataset.class_names, "classes")
    return replace(dataset, location=location.name)


def open_job_tags(
    wanted: JobRequest, location: DatasetLocation, settings: Settings
) -> TagTable | None:
    """The tags that a job judges, under the name of its dataset; None where it judges labels."""
    scoring = wanted.run.scoring
    tags = open_given_tags(location.uri, scoring, _reading(wanted, location, settings))
    if tags is None:
        return None
    # With and without each tag is a class of the decisions.
    if (number := 2 * len(tags.names)) > settings.max_classes:
        raise DatasetError(
            f"the dataset has {number // 2:,} tags, the maximum is {settings.max_classes // 2:,}, "
            "because with and without each is a class",
            "leave out tags, or raise ",
            Setting("max_classes"),
        )
    _require_short(class_names(tags.names), "tags, once more with `not` before,")
    return replace(tags, location=location.name)


def _reading(wanted: JobRequest, location: DatasetLocation, settings: Settings) -> DatasetOptions:
    limits = TableLimits(settings.max_rows, settings.max_text_bytes)
    return DatasetOptions(**wanted.run.reading, boundary=location.boundary, limits=limits)


def _require_short(names: Sequence[str], what: str) -> None:
    if (length := sum(map(len, names))) > MAX_NAMES_LENGTH:
        raise DatasetError(
            f"the names of the {what} have {length:,} characters together, the maximum is "
            f"{MAX_NAMES_LENGTH:,}",
            "shorten them",
        )
