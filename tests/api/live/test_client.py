"""The client of the package against a running service, also over connections that break."""

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest
from PIL import Image

from difficulty_service.bodies.jobs import JobEvent, JobPublic
from difficulty_service.client import (
    Client,
    Decision,
    JobCreate,
    JobDataset,
    MarkChange,
    ServiceError,
    connection,
    transfers,
)
from difficulty_service.marks.mark_kinds import Mark
from tests.api.live.running import Service

pytestmark = pytest.mark.slow

EACH, NUM_CLASSES = 8, 3


@dataclass
class Breaking(httpx2.BaseTransport):
    """A transport whose connections break after some bytes, as often as it is told.

    Attributes:
        after: Bytes of an answer, or of the body of a request, that arrive.
        times: Number of connections that break.
        of: Methods whose connections break.
        below: End of the addresses whose connections break.
        sent: Method, end of the address and headers of each request.
    """

    after: int
    times: int = 1
    of: str = "GET"
    below: str = ""
    sent: list[httpx2.Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._inner = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        if not self._breaks(request):
            return self._inner.handle_request(request)
        if request.method == "PUT":
            self._inner.handle_request(self._shortened(request)).read()
            raise httpx2.WriteError("the connection broke")
        response = self._inner.handle_request(request)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=BrokenStream(response, self.after),
        )

    def close(self) -> None:
        self._inner.close()

    def _breaks(self, request: httpx2.Request) -> bool:
        if request.method != self.of or not request.url.path.endswith(self.below) or not self.times:
            return False
        self.times -= 1
        return True

    def _shortened(self, request: httpx2.Request) -> httpx2.Request:
        content = request.content[: self.after]
        headers = {k: v for k, v in request.headers.items() if k != "content-length"}
        return httpx2.Request(request.method, request.url, headers=headers, content=content)


@dataclass
class BrokenStream(httpx2.SyncByteStream):
    """An answer that breaks after some bytes."""

    response: httpx2.Response
    left: int

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.response.iter_raw(100):
            yield chunk
            self.left -= len(chunk)
            if self.left <= 0:
                raise httpx2.ReadError("the connection broke")

    def close(self) -> None:
        self.response.close()


Call = Callable[..., Any]


@pytest.fixture
def call(shared_service: Service) -> Call:
    """Calls a method of a client of its own; what it gives one by one is a list."""

    def called(name: str, *args: object, transport: Any = None, **options: object) -> object:  # noqa: ANN401
        with Client(shared_service.url, transport=transport) as client:
            result = getattr(client, name)(*args, **options)
            return list(result) if isinstance(result, Iterator) else result

    return called


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PAUSES", (0.0,) * 4)
    monkeypatch.setattr("difficulty_service.client.client.PAUSES", (0.0,) * 4)


@pytest.fixture(scope="module")
def client(shared_service: Service) -> Iterator[Client]:
    with Client(shared_service.url) as client:
        yield client


@pytest.fixture(scope="module")
def archive(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "train.tar"
    with tarfile.open(path, "w") as target:
        target.add(photos / "train", arcname="train")
    return path


@pytest.fixture(scope="module")
def job(client: Client) -> JobPublic:
    """A finished job."""
    dataset = JobDataset(root="photos", path="train")
    submitted = client.submit(JobCreate(dataset=dataset, backbone="builtin"))
    return client.wait(submitted.id)


def test_a_job_is_followed_to_its_end_and_read(job: JobPublic, call: Call) -> None:
    assert job.state == "succeeded"
    events: list[JobEvent] = call("events", job.id)
    assert [each.state for each in events if each.kind == "state"][-1] == "succeeded"
    assert call("job", job.id) == job
    assert job.id in [each.id for each in call("jobs", state="succeeded")]
    assert call("wait", job.id) == job
    assert ["damaged" in each.sample_id for each in call("errors", job.id)] == [True]
    assert len(call("scores", job.id)) == EACH * NUM_CLASSES
    first = call("samples", job.id, sort="-rmd", label="cat")
    assert [each.label_name for each in first] == ["cat"] * EACH
    jpeg = call("thumbnail", job.id, first[0].sample_id, size=16)
    assert max(Image.open(io.BytesIO(jpeg)).size) == 16
    assert call("folders").entries[0].name == "photos"
    assert "train" in [each.name for each in call("folders", "photos").entries]
    assert "builtin" in [each.name for each in call("backbones").backbones]
    assert call("usage").result_bytes >= job.result.scores_bytes
    assert call("readiness").ready


def test_doubtful_samples_are_those_of_the_score_file_in_its_order(
    job: JobPublic, call: Call
) -> None:
    doubtful = call("doubtful", job.id)

    scores = call("scores", job.id)
    expected = scores.doubtful(EACH * NUM_CLASSES)
    column = "suspicion" if max(scores["suspicion"].to_pylist()) > 0 else "label_margin"
    values = [getattr(each, column) for each in doubtful]
    assert values == sorted(values, reverse=True)
    assert [each.sample_id for each in doubtful] == [
        row["sample_id"] for row in expected.to_pylist() if row[column] > 0
    ]


def test_marks_are_set_read_and_removed(job: JobPublic, call: Call) -> None:
    first, second = (each.sample_id for each in call("samples", job.id)[:2])
    keep, relabel = Decision(mark=Mark.KEEP), Decision(mark=Mark.RELABEL, label="dog")
    changes = [
        MarkChange(sample_id=first, decision=keep),
        MarkChange(sample_id=second, decision=relabel),
    ]

    counts = call("mark", job.id, changes).counts
    marks = {each.sample_id: (each.mark, each.label) for each in call("marks", job.id)}
    with pytest.raises(ServiceError, match="marked") as raised:
        call("mark", job.id, [MarkChange(sample_id=first, decision=relabel, seen=None)])
    removed = [MarkChange(sample_id=each, decision=None) for each in (first, second)]

    assert (counts.keep, counts.relabel, counts.drop) == (1, 1, 0)
    assert marks == {first: (Mark.KEEP, None), second: (Mark.RELABEL, "dog")}
    assert raised.value.status == 409
    assert call("mark", job.id, removed).counts.keep == 0


def test_columns_are_attached_read_and_removed(job: JobPublic, call: Call, tmp_path: Path) -> None:
    table = tmp_path / "cameras.csv"
    table.write_text("sample_id,camera,lens\nbird/0.png,A,x\n")

    attached = call("attach", job.id, table, ["camera", "lens"])

    assert (attached.name, attached.columns) == ("cameras.csv", ["camera", "lens"])
    found = call("columns", job.id)
    assert [column.name for column in found.columns] == ["image_fault", "camera", "lens"]
    call("detach", job.id, "cameras.csv")
    assert call("columns", job.id).tables == []
    with pytest.raises(ServiceError, match="has no file of its own"):
        call("attach", job.id)  # of its dataset, which is a folder


def test_single_samples_are_scored(client: Client, job: JobPublic, photos: Path) -> None:
    paths = [photos / "train" / "cat" / "0.png", photos / "train" / "dog" / "1.png"]

    scored = client.score_images(job.id, paths, ["cat", None]).samples

    known = {row.sample_id: row.md for row in client.samples(job.id)}
    assert [each.name for each in scored] == ["0.png", "1.png"]
    assert scored[0].md == pytest.approx(known["cat/0.png"], rel=1e-3)
    assert scored[0].label is not None
    assert scored[1].label is None
    with pytest.raises(ServiceError, match="features") as raised:
        client.score_features(job.id, [[1.0, 2.0]], ["cat"])
    assert raised.value.kind == "invalid-request"


def test_events_go_on_where_a_stream_was_cut(job: JobPublic, call: Call) -> None:
    whole = call("events", job.id)
    breaking = Breaking(after=100, times=3, below="/events")

    events = call("events", job.id, transport=breaking)

    assert events == whole
    known = [request.headers.get("Last-Event-ID") for request in breaking.sent]
    assert known[0] is None
    assert known[1:] == sorted(known[1:], key=int)
    assert len(known) == 4


def test_a_stream_that_never_gets_further_is_an_error(job: JobPublic, call: Call) -> None:
    with pytest.raises(ServiceError, match="the connection broke"):
        call("events", job.id, transport=Breaking(after=1, times=9, below="/events"))


def test_an_upload_goes_on_where_its_connection_broke(
    archive: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 30_000)
    breaking = Breaking(after=10_000, times=2, of="PUT")
    seen: list[int] = []

    upload = call(
        "upload", archive, transport=breaking, on_progress=lambda each: seen.append(each.received)
    )

    offsets = [r.url.params["offset"] for r in breaking.sent if r.method == "PUT"]
    assert upload.state == "complete"
    assert offsets[:3] == ["0", "10000", "20000"]
    assert seen[-1] == archive.stat().st_size
    call("delete_upload", upload.id)


def test_an_upload_that_was_given_up_is_resumed_by_a_later_call(
    archive: Path, client: Client, call: Call, tmp_path: Path
) -> None:
    with pytest.raises(ServiceError, match="the connection broke"):
        call("upload", archive, transport=Breaking(after=0, times=99, of="PUT"))
    begun = client.uploads().uploads[0]
    other = tmp_path / "other.tar"
    other.write_bytes(b"another")

    with pytest.raises(ServiceError, match="give the file that it was begun with"):
        call("upload", other, upload_id=begun.id)
    resumed = call("upload", archive, upload_id=begun.id)

    assert (resumed.id, resumed.state) == (begun.id, "complete")
    submitted = client.submit(
        JobCreate(dataset=JobDataset(upload=begun.id), backbone="builtin", limit=6)
    )
    assert client.wait(submitted.id).state == "succeeded"
    client.delete(submitted.id)
    client.delete_upload(begun.id)


def test_a_download_goes_on_where_its_connection_broke(
    job: JobPublic, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "scores.parquet"
    endless = Breaking(after=1, times=0, below=".parquet")
    assert call("download", job.id, tmp_path / "whole.parquet", transport=endless).exists()
    breaking = Breaking(after=1000, times=2, below=".parquet")

    call("download", job.id, path, transport=breaking)

    ranges = [r.headers.get("Range") for r in breaking.sent if r.url.path.endswith(".parquet")]
    assert ranges == [None, "bytes=1000-", "bytes=2000-"]
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert [each.name for each in path.parent.iterdir()] == ["scores.parquet"]


def test_a_download_that_was_given_up_leaves_no_file_and_is_resumed_later(
    job: JobPublic, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "scores.parquet"
    with pytest.raises(ServiceError, match="the connection broke"):
        call("download", job.id, path, transport=Stalling(after=500, times=99, below=".parquet"))
    assert not path.exists()
    watched = Breaking(after=0, times=0)

    call("download", job.id, path, transport=watched)

    assert watched.sent[-1].headers["Range"] == "bytes=500-"
    assert [each.name for each in tmp_path.iterdir()] == ["scores.parquet"]


class Stalling(Breaking):
    """Lets the first answer through in part, and none of the others."""

    def _breaks(self, request: httpx2.Request) -> bool:
        breaks = super()._breaks(request)
        if "Range" in request.headers:
            raise httpx2.ReadError("the connection broke")
        return breaks


def test_a_download_that_is_damaged_is_not_kept(job: JobPublic, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    assert job.result is not None
    unfinished = tmp_path / f".scores.parquet.{job.result.scores_sha256[:16]}.part"
    unfinished.write_bytes(b"other bytes")

    with pytest.raises(ServiceError, match="not as the service describes it"):
        call("download", job.id, path)

    assert list(tmp_path.iterdir()) == []


def test_the_same_idempotency_key_is_the_same_job_and_deleting_waits_for_its_end(
    client: Client, call: Call
) -> None:
    job = JobCreate(dataset=JobDataset(root="photos", path="train"), backbone="builtin", limit=3)
    submitted = [call("submit", job, idempotency_key=f"same {call!r}") for _ in range(2)]

    assert submitted[0].id == submitted[1].id
    call("delete", submitted[0].id)
    with pytest.raises(ServiceError) as raised:
        client.job(submitted[0].id)
    assert raised.value.status == 404


def test_cancelling_a_finished_job_keeps_it(job: JobPublic, call: Call) -> None:
    assert call("cancel", job.id) == job
    assert call("job", job.id) == job


def test_an_error_is_what_the_service_says(call: Call) -> None:
    with pytest.raises(ServiceError) as raised:
        call("job", "unknown")

    error = raised.value
    assert (error.status, error.kind) == (404, "not-found")
    assert error.title == "There is no such thing, or it belongs to another key"
    assert error.detail == "there is no job 'unknown'"
    assert str(error).startswith("there is no job 'unknown'; GET /v1/jobs lists")


def test_a_service_that_is_busy_is_asked_again_when_it_says(job: JobPublic, call: Call) -> None:
    busy = Busy(times=2)

    assert call("job", job.id, transport=busy) == job
    assert len(busy.sent) == 3


def test_a_service_that_stays_busy_or_asks_for_an_hour_is_an_error(
    job: JobPublic, call: Call
) -> None:
    for busy in (Busy(times=99), Busy(times=1, seconds=3600)):
        with pytest.raises(ServiceError, match="too many at once") as raised:
            call("job", job.id, transport=busy)
        assert raised.value.status == 429


@dataclass
class Busy(Breaking):
    """Answers that it is busy, as the service does."""

    after: int = 0
    seconds: int = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._refusal(request) or super().handle_request(request)

    def _refusal(self, request: httpx2.Request) -> httpx2.Response | None:
        if not self._breaks(request):
            return None
        self.sent.append(request)
        problem = {
            "type": "/problems/too-many-requests",
            "title": "Too many requests",
            "status": 429,
            "detail": "too many at once",
            "remedy": "try again later",
        }
        return httpx2.Response(429, json=problem, headers={"Retry-After": str(self.seconds)})


def test_columns_of_the_file_and_of_pages_are_the_same(client: Client, job: JobPublic) -> None:
    rows = {row.sample_id: row.rmd for row in client.samples(job.id, sort="rmd")}

    table: pa.Table = client.scores(job.id).table
    assert rows == dict(zip(table["sample_id"].to_pylist(), table["rmd"].to_pylist(), strict=True))
