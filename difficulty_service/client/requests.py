"""Every request to the service, as data: what is sent, and the type of the answer."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypedDict, TypeVar, Unpack
from urllib.parse import quote
from uuid import uuid4

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike
from pydantic import BaseModel

from difficulty_service.bodies.comparisons import (
    ComparisonCreate,
    ComparisonList,
    ComparisonPublic,
)
from difficulty_service.bodies.jobs import JobCreate, JobEstimate, JobPage, JobPublic, State
from difficulty_service.bodies.marks import MarkChange, MarkChanges, MarkPage, MarksChanged
from difficulty_service.bodies.results import (
    Columns,
    ErrorPage,
    MissingPublic,
    ScorePage,
    Table,
    TagList,
)
from difficulty_service.bodies.samples import ARROW_STREAM, JsonBody, ScoredSamples
from difficulty_service.bodies.service import Backbones, FolderPage, Readiness, Usage
from difficulty_service.bodies.uploads import UploadCreate, UploadList, UploadPublic

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

UPLOAD_SECONDS = 660.0
"""Longest wait for the answer to the last bytes of an upload, which is checked before."""

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request, and how its answer is read.

    Attributes:
        method: Method of HTTP.
        path: Address, with the names of what is inserted in braces.
        read: Reads the answer.
        inserted: Texts to insert into the path, by name.
        query: Parameters after the path.
        headers: Headers of its own.
        content: Body.
        files: Files of a form, instead of a body: name and content of each.
        fields: Further fields of that form.
        answers: Statuses from 400 on that are answers and no problems.
        seconds: Longest wait for the answer, if not that of the client.
    """

    method: Literal["GET", "HEAD", "POST", "PUT", "DELETE"]
    path: str
    read: Callable[[httpx2.Response], T]
    inserted: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | int | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    files: Sequence[tuple[str, tuple[str, bytes]]] = field(default=(), repr=False)
    fields: Mapping[str, list[str]] = field(default_factory=dict, repr=False)
    answers: frozenset[int] = frozenset()
    seconds: float | None = None

    @property
    def address(self) -> str:
        """The path with what is inserted."""
        return self.path.format(**{name: quote(v, safe="") for name, v in self.inserted.items()})

    @property
    def is_repeatable(self) -> bool:
        """Whether to send it twice does what to send it once does; a part of an upload is added."""
        return self.method not in ("POST", "PUT") or "Idempotency-Key" in self.headers


def to(model: type[Model]) -> Callable[[httpx2.Response], Model]:
    """Reads a JSON body; fields that a newer service has added are left out."""
    return lambda response: model.model_validate_json(response.content, extra="ignore")


def nothing(response: httpx2.Response) -> None:
    """Reads no body."""


def content(response: httpx2.Response) -> bytes:
    """Reads a body as it is."""
    return response.content


def given(**values: str | int | None) -> dict[str, str | int]:
    """Those parameters that are given."""
    return {name: value for name, value in values.items() if value is not None}


def written(body: BaseModel) -> bytes:
    """A JSON body, with the fields that were given."""
    return body.model_dump_json(exclude_unset=True).encode()


# Jobs


def submit(job: JobCreate, *, idempotency_key: str | None = None) -> Request[JobPublic]:
    """Submits a dataset to be scored.

    Args:
        job: The dataset and how to score it.
        idempotency_key: The same key and job give the same job again, also from another process;
            by default each call is a new job, however often its request has to be repeated.
    """
    headers = JSON | {"Idempotency-Key": idempotency_key or uuid4().hex}
    return Request("POST", "/v1/jobs", to(JobPublic), content=written(job), headers=headers)


def estimate(job: JobCreate) -> Request[JobEstimate]:
    """Estimates how long a job would take."""
    body = written(job)
    return Request("POST", "/v1/estimates", to(JobEstimate), content=body, headers=JSON)


def job_page(
    *,
    state: State | None = None,
    owner: str | None = None,
    limit: int | None = None,
    before: str | None = None,
) -> Request[JobPage]:
    """A page of jobs, newest first; `before` is `next` of the page before."""
    query = given(state=state, owner=owner, limit=limit, before=before)
    return Request("GET", "/v1/jobs", to(JobPage), query=query)


def job(job_id: str) -> Request[JobPublic]:
    """State, progress and result of a job."""
    return Request("GET", "/v1/jobs/{job_id}", to(JobPublic), {"job_id": job_id})


def cancel(job_id: str) -> Request[JobPublic]:
    """Cancels a job within seconds; one that has ended stays as it is, and is the answer."""
    query = {"only_cancel": "true"}
    return Request("DELETE", "/v1/jobs/{job_id}", to(JobPublic), {"job_id": job_id}, query)


def remove_job(job_id: str) -> Request[bool]:
    """Deletes a job that has ended, else cancels it; whether it is deleted."""

    def is_gone(response: httpx2.Response) -> bool:
        return response.status_code == httpx2.codes.NO_CONTENT

    return Request("DELETE", "/v1/jobs/{job_id}", is_gone, {"job_id": job_id})


def follow(job_id: str, last_id: int) -> Request[None]:
    """The stream of the events of a job after one of them; 0 for all."""
    headers = {"Last-Event-ID": str(last_id)} if last_id else {}
    path = "/v1/jobs/{job_id}/events"
    return Request("GET", path, nothing, {"job_id": job_id}, headers=headers)


# Results


class ScoreFilter(TypedDict, total=False):
    """Conditions of a list of samples.

    Attributes:
        label: Name or index of a class.
        near: Class that fits best, or a part of its name.
        pmin: Lowest percentile of difficulty, 0 to 100.
        pmax: Highest percentile of difficulty.
        margin: Suspicion, or margin where there is none, to be exceeded.
        q: Text in the sample id.
        mark: none, any, keep, relabel, drop, misplaced, disagree, tie or final.
        verified: `only`: decided in an earlier round; `all` (default): whatever was decided.
        area: Corners of an area of the map.
        like: Row of a sample that they are like.
        text: Words, of which the closest samples are listed.
        share: One of several shares, such as 1of3.
    """

    label: str
    near: str
    pmin: str
    pmax: str
    margin: str
    q: str
    mark: str
    verified: str
    area: str
    like: str
    text: str
    share: str


def score_page(
    job_id: str,
    *,
    sort: str | None = None,
    limit: int | None = None,
    after: str | None = None,
    columns: Mapping[str, str] | None = None,
    **conditions: Unpack[ScoreFilter],
) -> Request[ScorePage]:
    """A page of samples with their scores; `after` is `next` of the page before.

    Args:
        job_id: A finished job.
        sort: A column, with `-` for the largest first; or `doubtful`, or `alike`; by default the
            hardest first.
        limit: Samples of a page, 1000 at most.
        after: Where the page begins.
        columns: Conditions on columns beside the scores and on faults of images, such as
            `{"is.camera": "A", "is.image_fault": "blurred"}`.
        conditions: Further conditions.
    """
    known = given(sort=sort, limit=limit, after=after)
    query = known | dict(columns or {}) | {name: str(v) for name, v in conditions.items()}
    return Request("GET", "/v1/jobs/{job_id}/scores", to(ScorePage), {"job_id": job_id}, query)


def error_page(
    job_id: str, *, limit: int | None = None, after: int | None = None
) -> Request[ErrorPage]:
    """A page of what has no score, with reasons; `after` is `next` of the page before."""
    query = given(limit=limit, after=after)
    return Request("GET", "/v1/jobs/{job_id}/errors", to(ErrorPage), {"job_id": job_id}, query)


def tags(job_id: str) -> Request[TagList]:
    """How many tags are wrong and missing, of a job that judged tags."""
    return Request("GET", "/v1/jobs/{job_id}/tags", to(TagList), {"job_id": job_id})


def missing_boxes(job_id: str) -> Request[MissingPublic]:
    """Regions that look like an object and have no box, of a job that looked for them."""
    return Request("GET", "/v1/jobs/{job_id}/missing", to(MissingPublic), {"job_id": job_id})


def region_picture(job_id: str, number: int) -> Request[bytes]:
    """A WebP of one of these regions, by its place in the list."""
    inserted = {"job_id": job_id, "number": str(number)}
    return Request("GET", "/v1/jobs/{job_id}/missing/{number}.webp", content, inserted)


def score_file(job_id: str, start: int, etag: str) -> Request[None]:
    """The score file from a byte on, if it still has this entity tag, and else the whole."""
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": etag}
    path = "/v1/jobs/{job_id}/scores.parquet"
    return Request("GET", path, nothing, {"job_id": job_id}, headers=headers)


def thumbnail(job_id: str, sample_id: str, *, size: int = 128) -> Request[bytes]:
    """A JPEG of an image; `size` is the length of the longer side in pixels, 16 to 512."""
    inserted = {"job_id": job_id, "sample_id": sample_id}
    path = "/v1/jobs/{job_id}/thumbnails/{sample_id}"
    return Request("GET", path, content, inserted, {"size": size})


# Columns


def columns(job_id: str) -> Request[Columns]:
    """The columns beside the scores of a job, and the tables that they are of."""
    return Request("GET", "/v1/jobs/{job_id}/columns", to(Columns), {"job_id": job_id})


def attach(
    job_id: str, table: str | Path = "dataset", columns: Sequence[str] = ()
) -> Request[Table]:
    """Joins columns of a table to the scores of a job, in place of a table of the same name.

    Args:
        job_id: A finished job of this key.
        table: Path of a CSV, Parquet or JSON Lines file with sample ids or paths; or `dataset` for
            the dataset of the job, where that is a table.
        columns: Names of the columns to show; all where none is named.
    """
    name, body = (
        ("dataset", b"") if table == "dataset" else (Path(table).name, Path(table).read_bytes())
    )
    path = "/v1/jobs/{job_id}/columns/{table}"
    inserted, query = {"job_id": job_id, "table": name}, {"column": list(columns)}
    return Request("PUT", path, to(Table), inserted, query, content=body, seconds=UPLOAD_SECONDS)


def detach(job_id: str, table: str) -> Request[None]:
    """Removes the columns of a table, which is named as in `columns`."""
    path = "/v1/jobs/{job_id}/columns/{table}"
    return Request("DELETE", path, nothing, {"job_id": job_id, "table": table})


# Comparisons


def compare_once(job_id: str, asked: ComparisonCreate) -> Request[ComparisonPublic]:
    """Asks for a comparison, which is begun unless it is there."""
    path, inserted = "/v1/jobs/{job_id}/comparisons", {"job_id": job_id}
    read, body = to(ComparisonPublic), written(asked)
    return Request("POST", path, read, inserted, content=body, headers=JSON)


def comparison(job_id: str, comparison_id: str) -> Request[ComparisonPublic]:
    """How far a comparison is, or what was found."""
    path = "/v1/jobs/{job_id}/comparisons/{comparison_id}"
    return Request("GET", path, to(ComparisonPublic), compared(job_id, comparison_id))


def comparisons(
    job_id: str, *, limit: int | None = None, before: str | None = None
) -> Request[ComparisonList]:
    """A page of what was asked of a job, latest first; `before` is `next` of the page before."""
    path, query = "/v1/jobs/{job_id}/comparisons", given(limit=limit, before=before)
    return Request("GET", path, to(ComparisonList), {"job_id": job_id}, query)


def comparison_classes(job_id: str, comparison_id: str) -> Request[pa.Table]:
    """How far each class moved, where there are more than the result names, as an Arrow table."""
    path = "/v1/jobs/{job_id}/comparisons/{comparison_id}/classes.parquet"
    return Request("GET", path, table_of, compared(job_id, comparison_id))


def comparison_table(job_id: str, comparison_id: str) -> Request[pa.Table]:
    """The pairs, changes or chosen samples of a comparison, as an Arrow table."""
    path = "/v1/jobs/{job_id}/comparisons/{comparison_id}/table.parquet"
    return Request("GET", path, table_of, compared(job_id, comparison_id))


def comparison_marks(job_id: str, comparison_id: str, of_job: str) -> Request[pa.Table]:
    """Marks that drop the copies of a job, or what was not chosen, as an Arrow table."""
    path = "/v1/jobs/{job_id}/comparisons/{comparison_id}/marks.parquet"
    return Request("GET", path, table_of, compared(job_id, comparison_id), {"job": of_job})


def delete_comparison(job_id: str, comparison_id: str) -> Request[None]:
    """Deletes a comparison; one that is being made is stopped."""
    path = "/v1/jobs/{job_id}/comparisons/{comparison_id}"
    return Request("DELETE", path, nothing, compared(job_id, comparison_id))


def compared(job_id: str, comparison_id: str) -> Mapping[str, str]:
    """What is inserted into the address of a comparison."""
    return {"job_id": job_id, "comparison_id": comparison_id}


def table_of(response: httpx2.Response) -> pa.Table:
    """Reads a Parquet file."""
    return pq.read_table(io.BytesIO(response.content))


# Marks


def mark_page(
    job_id: str, *, limit: int | None = None, after: int | None = None
) -> Request[MarkPage]:
    """A page of the marks of this key; `after` is `next` of the page before."""
    query = given(limit=limit, after=after)
    return Request("GET", "/v1/jobs/{job_id}/marks", to(MarkPage), {"job_id": job_id}, query)


def mark(job_id: str, changes: Sequence[MarkChange]) -> Request[MarksChanged]:
    """Stores or removes up to 1000 marks of this key, all of them or none."""
    body = written(MarkChanges(marks=list(changes)))
    path = "/v1/jobs/{job_id}/marks"
    return Request("POST", path, to(MarksChanged), {"job_id": job_id}, content=body, headers=JSON)


# Single samples

SCORE = "/v1/gaussians/{job_id}/score"
Labels = Sequence[str | None] | None


def score_images(
    job_id: str, images: Sequence[str | Path | bytes], labels: Labels = None
) -> Request[ScoredSamples]:
    """Scores images against the Gaussians of a finished job.

    Args:
        job_id: The job.
        images: Paths or encoded images.
        labels: Name or index of the class of each, None where it is unknown.
    """
    files = [
        (f"image {number}", image)
        if isinstance(image, bytes)
        else (Path(image).name, Path(image).read_bytes())
        for number, image in enumerate(images)
    ]
    fields = {} if labels is None else {"labels": [label or "" for label in labels]}
    forms = [("images", file) for file in files]
    read = to(ScoredSamples)
    return Request("POST", SCORE, read, {"job_id": job_id}, files=forms, fields=fields)


def score_texts(job_id: str, texts: Sequence[str], labels: Labels = None) -> Request[ScoredSamples]:
    """Scores texts against the Gaussians of a finished job, as `score_images`."""
    body = written(JsonBody(texts=list(texts), labels=None if labels is None else list(labels)))
    return Request("POST", SCORE, to(ScoredSamples), {"job_id": job_id}, content=body, headers=JSON)


def score_features(
    job_id: str, features: ArrayLike, labels: Labels = None
) -> Request[ScoredSamples]:
    """Scores feature vectors of shape (samples, dim), as `score_images`."""
    vectors = np.asarray(features, np.float32)
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[-1])
    columns = {"features": values}
    if labels is not None:
        columns["label"] = pa.array(labels, pa.string())
    table = pa.table(columns)
    target = io.BytesIO()
    with pa.ipc.new_stream(target, table.schema) as stream:
        stream.write_table(table)
    return Request(
        "POST",
        SCORE,
        to(ScoredSamples),
        {"job_id": job_id},
        content=target.getvalue(),
        headers={"Content-Type": ARROW_STREAM},
    )


# Uploads


def create_upload(form: UploadCreate) -> Request[UploadPublic]:
    """Announces an upload."""
    return Request("POST", "/v1/uploads", to(UploadPublic), content=written(form), headers=JSON)


def upload_status(upload_id: str) -> Request[UploadPublic]:
    """The number of bytes that have arrived of an upload."""
    return Request("GET", "/v1/uploads/{upload_id}", to(UploadPublic), {"upload_id": upload_id})


def send_part(upload_id: str, offset: int, part: bytes) -> Request[UploadPublic]:
    """Sends bytes of an upload."""
    return Request(
        "PUT",
        "/v1/uploads/{upload_id}",
        to(UploadPublic),
        {"upload_id": upload_id},
        {"offset": offset},
        {"Content-Type": "application/octet-stream"},
        content=part,
        seconds=UPLOAD_SECONDS,
    )


def uploads(*, limit: int | None = None, before: str | None = None) -> Request[UploadList]:
    """Uploads, newest first; `before` is the id of the last one of the page before."""
    query = given(limit=limit, before=before)
    return Request("GET", "/v1/uploads", to(UploadList), query=query)


def delete_upload(upload_id: str) -> Request[None]:
    """Deletes an upload with its bytes."""
    return Request("DELETE", "/v1/uploads/{upload_id}", nothing, {"upload_id": upload_id})


# The service


def folders(root: str = "", path: str = "", *, start: int = 0) -> Request[FolderPage]:
    """The roots of the service, or what a folder of a root holds."""
    query = given(root=root or None, path=path or None, start=start or None)
    return Request("GET", "/v1/folders", to(FolderPage), query=query)


def backbones() -> Request[Backbones]:
    """The backbones that jobs may use."""
    return Request("GET", "/v1/backbones", to(Backbones))


def usage() -> Request[Usage]:
    """What the key keeps in the service, and how much it may."""
    return Request("GET", "/v1/usage", to(Usage))


def readiness() -> Request[Readiness]:
    """Whether jobs can be accepted and run, and what is missing."""
    unavailable = frozenset({int(httpx2.codes.SERVICE_UNAVAILABLE)})
    return Request("GET", "/readyz", to(Readiness), answers=unavailable)
