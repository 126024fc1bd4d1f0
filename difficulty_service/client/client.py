"""The client of the REST service: one method for each question or task, with its request."""

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from uuid import uuid4

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from difficulty_service.bodies.comparisons import (
    ComparisonList,
    ComparisonPublic,
)
from difficulty_service.bodies.jobs import (
    JobCreate,
    JobEstimate,
    JobEvent,
    JobPage,
    JobPublic,
    State,
)
from difficulty_service.bodies.marks import (
    MarkChange,
    MarkChanges,
    MarkPage,
    MarkPublic,
    MarksChanged,
)
from difficulty_service.bodies.results import (
    Columns,
    ErrorPage,
    MissingPublic,
    ScorePage,
    ScoreRow,
    Table,
    TagList,
    UnreadableImage,
)
from difficulty_service.bodies.samples import ARROW_STREAM, JsonBody, SamplesScored
from difficulty_service.bodies.service import Backbones, FolderPage, Readiness, Usage
from difficulty_service.bodies.uploads import UploadList, UploadPublic
from difficulty_service.client import transfers
from difficulty_service.client.connection import DEFAULT_URL, PAUSES, ServiceConnection
from difficulty_service.client.job_events import follow
from difficulty_service.client.sample_bodies import Labels, arrow_stream, image_files
from difficulty_service.client.score_filter import ScoreFilter

if TYPE_CHECKING:
    from difficulty_service.interface.scores import Scores

Item = TypeVar("Item")
Cursor = TypeVar("Cursor", str, int)

LONGEST_PAGE = 1000


class Client:
    """A client of the REST service, for use in a `with` block.

    A service that is busy (429, 503) or out of reach is asked again some times, as it says in
    `Retry-After`. Every method raises `ServiceError` where the service refuses. Several threads may
    use a client at once.

    Args:
        url: Address of the service.
        key: API key; by default the one in the environment variable DIFFICULTY_KEY, if it is set.
        transport: Transport of httpx2 in place of its own, such as one with certificates.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._service = ServiceConnection(url, key, transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._service}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._service.close()

    # Jobs

    def submit(self, job: JobCreate, *, idempotency_key: str | None = None) -> JobPublic:
        """Submits a dataset to be scored.

        Args:
            job: The dataset and how to score it.
            idempotency_key: The same key and job give the same job again, also from another
                process; by default each call is a new job, however often its request has to be
                repeated.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex}
        return self._service.ask(JobPublic, "POST", "/v1/jobs", body=job, headers=headers)

    def estimate(self, job: JobCreate) -> JobEstimate:
        """Estimates how long a job would take."""
        return self._service.ask(JobEstimate, "POST", "/v1/estimates", body=job)

    def jobs(self, *, state: State | None = None, owner: str | None = None) -> Iterator[JobPublic]:
        """Jobs, newest first; those of another key with the scope read-all."""

        def page(before: str | None) -> tuple[list[JobPublic], str | None]:
            found = self.job_page(state=state, owner=owner, limit=200, before=before)
            return found.jobs, found.next

        return all_of(page)

    def job_page(
        self,
        *,
        state: State | None = None,
        owner: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> JobPage:
        """A page of jobs, newest first; `before` is `next` of the page before."""
        params = {"state": state, "owner": owner, "limit": limit, "before": before}
        return self._service.ask(JobPage, "GET", "/v1/jobs", params=params)

    def job(self, job_id: str) -> JobPublic:
        """State, progress and result of a job."""
        return self._service.ask(JobPublic, "GET", "/v1/jobs/{}", job_id)

    def events(self, job_id: str, *, after: int = 0) -> Iterator[JobEvent]:
        """What happens to a job, as it happens, until it ends.

        After a broken connection it goes on with the event that follows.

        Args:
            job_id: The job.
            after: Id of the last event that is known; 0 for none.
        """
        return follow(self._service, job_id, after)

    def wait(self, job_id: str) -> JobPublic:
        """The job, once it has ended, however it did; `state` says how."""
        for _ in self.events(job_id):
            pass
        return self.job(job_id)

    def cancel(self, job_id: str) -> JobPublic:
        """Cancels a job within seconds; one that has ended stays as it is, and is the answer."""
        params = {"only_cancel": "true"}
        return self._service.ask(JobPublic, "DELETE", "/v1/jobs/{}", job_id, params=params)

    def delete(self, job_id: str) -> None:
        """Deletes a job with its files; one that has not ended is cancelled first."""
        while True:
            response = self._service.send("DELETE", "/v1/jobs/{}", job_id)
            if response.status_code == HTTPStatus.NO_CONTENT:
                return
            self.wait(job_id)

    # Results

    def scores(self, job_id: str) -> "Scores":
        """The scores of a job, in memory."""
        from difficulty_service.interface.scores import open_scores

        with TemporaryDirectory() as folder:
            return open_scores(self.download(job_id, Path(folder, "scores.parquet")))

    def download(self, job_id: str, path: str | Path) -> Path:
        """Writes the score file of a job, which appears whole or not at all; gives its path.

        What has arrived when a connection breaks is kept beside it, also for a later call.
        """
        transfers.download(self._service, self.job(job_id), Path(path))
        return Path(path)

    def samples(
        self,
        job_id: str,
        *,
        sort: str | None = None,
        columns: Mapping[str, str] | None = None,
        **conditions: Unpack[ScoreFilter],
    ) -> Iterator[ScoreRow]:
        """Every sample that fulfils the conditions with its scores, in the order `sort`.

        `columns` are conditions on columns as for `score_page`: `{"is.image_fault": "(some)"}` for
        the images with a fault.
        """

        def page(after: str | None) -> tuple[list[ScoreRow], str | None]:
            found = self.score_page(
                job_id, sort=sort, limit=LONGEST_PAGE, after=after, columns=columns, **conditions
            )
            return found.samples, found.next

        return all_of(page)

    def doubtful(
        self,
        job_id: str,
        *,
        columns: Mapping[str, str] | None = None,
        **conditions: Unpack[ScoreFilter],
    ) -> Iterator[ScoreRow]:
        """The samples with a doubtful label, the most doubtful first, whether marked or not.

        A condition such as `mark="none"` leaves out what is marked; `columns` are as for `samples`.
        """
        conditions.setdefault("margin", "0")
        return self.samples(job_id, sort="doubtful", columns=columns, **conditions)

    def score_page(
        self,
        job_id: str,
        *,
        sort: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        columns: Mapping[str, str] | None = None,
        **conditions: Unpack[ScoreFilter],
    ) -> ScorePage:
        """A page of samples with their scores; `after` is `next` of the page before.

        Args:
            job_id: A finished job.
            sort: A column, with `-` for the largest first; or `doubtful`, or `alike`; by default
                the hardest first.
            limit: Samples of a page, 1000 at most.
            after: Where the page begins.
            columns: Conditions on columns beside the scores and on faults of images, such as
                `{"is.camera": "A", "is.image_fault": "blurred"}`.
            conditions: Further conditions.
        """
        params = {"sort": sort, "limit": limit, "after": after, **(columns or {}), **conditions}
        return self._service.ask(ScorePage, "GET", "/v1/jobs/{}/scores", job_id, params=params)

    def errors(self, job_id: str) -> Iterator[UnreadableImage]:
        """What has no score, with reasons, in the order of the dataset."""

        def page(after: int | None) -> tuple[list[UnreadableImage], int | None]:
            params = {"limit": LONGEST_PAGE, "after": after}
            path = "/v1/jobs/{}/errors"
            found = self._service.ask(ErrorPage, "GET", path, job_id, params=params)
            return found.errors, found.next

        return all_of(page)

    def tags(self, job_id: str) -> TagList:
        """How many tags are wrong and missing, of a job that judged tags."""
        return self._service.ask(TagList, "GET", "/v1/jobs/{}/tags", job_id)

    def missing_boxes(self, job_id: str) -> MissingPublic:
        """Regions that look like an object and have no box, of a job that looked for them."""
        return self._service.ask(MissingPublic, "GET", "/v1/jobs/{}/missing", job_id)

    def region_picture(self, job_id: str, number: int) -> bytes:
        """A WebP of one of these regions, by its place in the list."""
        path = "/v1/jobs/{}/missing/{}.webp"
        return self._service.send("GET", path, job_id, str(number)).content

    def thumbnail(self, job_id: str, sample_id: str, *, size: int = 128) -> bytes:
        """A JPEG of an image; `size` is the length of the longer side in pixels, 16 to 512."""
        path, params = "/v1/jobs/{}/thumbnails/{}", {"size": size}
        return self._service.send("GET", path, job_id, sample_id, params=params).content

    # Columns

    def columns(self, job_id: str) -> Columns:
        """The columns beside the scores of a job, and the tables that they are of."""
        return self._service.ask(Columns, "GET", "/v1/jobs/{}/columns", job_id)

    def attach(
        self, job_id: str, table: str | Path = "dataset", columns: Sequence[str] = ()
    ) -> Table:
        """Joins columns of a table to the scores of a job, in place of a table of the same name.

        Args:
            job_id: A finished job of this key.
            table: Path of a CSV, Parquet or JSON Lines file with sample ids or paths; or `dataset`
                for the dataset of the job, where that is a table.
            columns: Names of the columns to show; all where none is named.
        """
        is_file = table != "dataset"
        return self._service.ask(
            Table,
            "PUT",
            "/v1/jobs/{}/columns/{}",
            job_id,
            Path(table).name,
            params={"column": list(columns)},
            content=Path(table).read_bytes() if is_file else b"",
            timeout=transfers.LAST_PART,
        )

    def detach(self, job_id: str, table: str) -> None:
        """Removes the columns of a table, which is named as in `columns`."""
        self._service.send("DELETE", "/v1/jobs/{}/columns/{}", job_id, table)

    # Comparisons

    def compare(self, job_id: str, kind: str, **options: Any) -> ComparisonPublic:  # noqa: ANN401
        """What is asked of finished jobs, once it is there or has failed; `state` says which.

        Args:
            job_id: The job with the training set, the new version, or the samples to choose from.
            kind: `leaks`, `diff`, `select`, or what a package of the service adds.
            options: Those of the command of this name, and the fields that name other jobs:
                `tests` of leaks, `old` of a diff, `labelled` and `chosen` of a selection.
        """
        path, asked = "/v1/jobs/{}/comparisons", {"kind": kind, **options}
        found = self._service.ask(ComparisonPublic, "POST", path, job_id, body=asked)
        pauses = iter(PAUSES)
        while found.state == "running":
            time.sleep(next(pauses, PAUSES[-1]))
            found = self.comparison(job_id, found.id)
        return found

    def comparison(self, job_id: str, comparison_id: str) -> ComparisonPublic:
        """How far a comparison is, or what was found."""
        path = "/v1/jobs/{}/comparisons/{}"
        return self._service.ask(ComparisonPublic, "GET", path, job_id, comparison_id)

    def comparisons(
        self, job_id: str, *, limit: int | None = None, before: str | None = None
    ) -> ComparisonList:
        """A page of comparisons of a job, latest first; `before` is `next` of the page before."""
        path, params = "/v1/jobs/{}/comparisons", {"limit": limit, "before": before}
        return self._service.ask(ComparisonList, "GET", path, job_id, params=params)

    def comparison_classes(self, job_id: str, comparison_id: str) -> pa.Table:
        """How far each class moved, where there are more than the result names."""
        path = "/v1/jobs/{}/comparisons/{}/classes.parquet"
        return table_of(self._service.send("GET", path, job_id, comparison_id))

    def comparison_table(self, job_id: str, comparison_id: str) -> pa.Table:
        """The pairs, changes or chosen samples of a comparison."""
        path = "/v1/jobs/{}/comparisons/{}/table.parquet"
        return table_of(self._service.send("GET", path, job_id, comparison_id))

    def comparison_marks(self, job_id: str, comparison_id: str, of_job: str) -> pa.Table:
        """Marks that drop the copies of a job, or what was not chosen."""
        path, params = "/v1/jobs/{}/comparisons/{}/marks.parquet", {"job": of_job}
        return table_of(self._service.send("GET", path, job_id, comparison_id, params=params))

    def delete_comparison(self, job_id: str, comparison_id: str) -> None:
        """Deletes a comparison; one that is being made is stopped."""
        self._service.send("DELETE", "/v1/jobs/{}/comparisons/{}", job_id, comparison_id)

    # Marks

    def marks(self, job_id: str) -> Iterator[MarkPublic]:
        """The marks of this key, in the order of the score file."""

        def page(after: int | None) -> tuple[list[MarkPublic], int | None]:
            path, params = "/v1/jobs/{}/marks", {"limit": LONGEST_PAGE, "after": after}
            found = self._service.ask(MarkPage, "GET", path, job_id, params=params)
            return found.marks, found.next

        return all_of(page)

    def mark(self, job_id: str, changes: Sequence[MarkChange]) -> MarksChanged:
        """Stores or removes up to 1000 marks of this key, all of them or none."""
        body = MarkChanges(marks=list(changes))
        return self._service.ask(MarksChanged, "POST", "/v1/jobs/{}/marks", job_id, body=body)

    # Single samples

    def score_images(
        self, job_id: str, images: Sequence[str | Path | bytes], labels: Labels = None
    ) -> SamplesScored:
        """Scores images against the Gaussians of a finished job.

        Args:
            job_id: The job.
            images: Paths or encoded images.
            labels: Name or index of the class of each, None where it is unknown.
        """
        fields = {} if labels is None else {"labels": [label or "" for label in labels]}
        return self._score(job_id, files=image_files(images), data=fields)

    def score_texts(
        self, job_id: str, texts: Sequence[str], labels: Labels = None
    ) -> SamplesScored:
        """Scores texts against the Gaussians of a finished job, as `score_images`."""
        body = JsonBody(texts=list(texts), labels=None if labels is None else [*labels])
        return self._score(job_id, body=body)

    def score_features(
        self, job_id: str, features: ArrayLike, labels: Labels = None
    ) -> SamplesScored:
        """Scores feature vectors of shape (samples, dim), as `score_images`."""
        content = arrow_stream(features, labels)
        return self._score(job_id, content=content, headers={"Content-Type": ARROW_STREAM})

    def _score(self, job_id: str, **body: Any) -> SamplesScored:  # noqa: ANN401 - those of `ask`
        return self._service.ask(SamplesScored, "POST", "/v1/gaussians/{}/score", job_id, **body)

    # Uploads

    def upload(
        self,
        path: str | Path,
        *,
        upload_id: str | None = None,
        on_progress: Callable[[UploadPublic], object] | None = None,
    ) -> UploadPublic:
        """Sends a dataset, a tar, zip or Parquet file, and gives the complete upload.

        After a broken connection it goes on with the first byte that the service does not have.

        Args:
            path: The file; its ending says what it is.
            upload_id: An upload of this file that was begun before; by default a new one.
            on_progress: Called with the upload after each part.
        """
        return transfers.upload(self._service, Path(path), upload_id, on_progress)

    def uploads(self, *, limit: int | None = None, before: str | None = None) -> UploadList:
        """Uploads, newest first; `before` is the id of the last one of the page before."""
        params = {"limit": limit, "before": before}
        return self._service.ask(UploadList, "GET", "/v1/uploads", params=params)

    def upload_status(self, upload_id: str) -> UploadPublic:
        """The number of bytes that have arrived of an upload."""
        return self._service.ask(UploadPublic, "GET", "/v1/uploads/{}", upload_id)

    def delete_upload(self, upload_id: str) -> None:
        """Deletes an upload with its bytes."""
        self._service.send("DELETE", "/v1/uploads/{}", upload_id)

    # The service

    def folders(self, root: str = "", path: str = "", *, start: int = 0) -> FolderPage:
        """The roots of the service, or what a folder of a root holds."""
        params = {"root": root or None, "path": path or None, "start": start or None}
        return self._service.ask(FolderPage, "GET", "/v1/folders", params=params)

    def backbones(self) -> Backbones:
        """The backbones that jobs may use."""
        return self._service.ask(Backbones, "GET", "/v1/backbones")

    def usage(self) -> Usage:
        """What the key keeps in the service, and how much it may."""
        return self._service.ask(Usage, "GET", "/v1/usage")

    def readiness(self) -> Readiness:
        """Whether jobs can be accepted and run, and what is missing."""
        unavailable = (HTTPStatus.SERVICE_UNAVAILABLE,)
        return self._service.ask(Readiness, "GET", "/readyz", answers=unavailable)


def all_of(
    page: Callable[[Cursor | None], tuple[Iterable[Item], Cursor | None]],
) -> Iterator[Item]:
    """The items of one page after the other; a page gives its items, and where the next begins."""
    after: Cursor | None = None
    while True:
        items, after = page(after)
        yield from items
        if after is None:
            return


def table_of(response: httpx2.Response) -> pa.Table:
    """Reads a Parquet file."""
    return pq.read_table(io.BytesIO(response.content))
