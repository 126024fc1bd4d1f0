"""Jobs over HTTP: submitted once, listed in pages, cancelled, removed, never another key's."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import Engine

from api.app import create_app
from api.jobs.queue import Progress, claim, fail, heartbeat, succeed
from api.jobs.store import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts

Body = dict[str, object]

RESULT = {
    "num_samples": 4,
    "num_scored": 4,
    "num_bad_images": 0,
    "scores_bytes": 3,
    "scores_sha256": "0" * 64,
    "warnings": [],
    "class_names": ["cat", "dog"],
}


@pytest.fixture
def finished(client: TestClient, engine: Engine, body: Body) -> Callable[[], Job]:
    """Submits a job and plays its worker; gives the job as claimed."""

    def finish() -> Job:
        client.post("/v1/jobs", json=body)
        job = claim(engine, "worker", "cpu", 60.0)
        assert job is not None
        assert succeed(engine, job, RESULT | {"prefix": f"jobs/{job.id}/a1"})
        return job

    return finish


def test_a_submitted_job_is_queued_at_its_location(client: TestClient, body: Body) -> None:
    submitted = client.post("/v1/jobs", json=body)

    job = client.get(submitted.headers["Location"]).json()
    assert submitted.status_code == 202
    assert submitted.json() == job
    assert job["state"] == "queued"
    assert job["request"]["backbone"] == "builtin"
    assert job["request"]["dataset"] == {"root": "photos", "path": "train"}
    assert job["progress"] == {
        "done": 0,
        "total": None,
        "bad": 0,
        "rate": None,
        "seconds_left": None,
    }


def test_the_same_idempotency_key_and_body_give_the_same_job(
    client: TestClient, body: Body
) -> None:
    headers = {"Idempotency-Key": "once"}

    first = client.post("/v1/jobs", json=body, headers=headers)
    again = client.post("/v1/jobs", json=body, headers=headers)
    other = client.post("/v1/jobs", json=body | {"seed": 1}, headers=headers)

    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1
    assert_problem(other, 409, "conflict", "Idempotency-Key")


def test_a_running_job_shows_its_progress_and_remaining_time(
    client: TestClient, engine: Engine, body: Body
) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]
    job = claim(engine, "worker", "cpu", 60.0)
    assert job is not None
    heartbeat(engine, job, 60.0, Progress(30, 100, 2, 10.0))

    shown = client.get(address).json()

    assert shown["state"] == "running"
    assert shown["attempts"] == 1
    assert shown["progress"] == {
        "done": 30,
        "total": 100,
        "bad": 2,
        "rate": 10.0,
        "seconds_left": 7.0,
    }


def test_pages_show_every_job_once_newest_first(client: TestClient, body: Body) -> None:
    submitted = [client.post("/v1/jobs", json=body).json()["id"] for _ in range(5)]

    seen: list[str] = []
    query: dict[str, object] = {"limit": 2}
    while True:
        page = client.get("/v1/jobs", params=query).json()
        seen += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]

    assert seen == submitted[::-1]


def test_jobs_are_listed_by_state(client: TestClient, body: Body, finished: Callable) -> None:
    done = finished()
    waiting = client.post("/v1/jobs", json=body).json()["id"]

    def listed(state: str) -> list[str]:
        return [job["id"] for job in client.get(f"/v1/jobs?state={state}").json()["jobs"]]

    assert listed("succeeded") == [done.id]
    assert listed("queued") == [waiting]
    assert client.get("/v1/jobs?state=lost").status_code == 422


@pytest.mark.parametrize("cursor", ["x", "%F0%9F%98%80", "AAAA", "f_gAAAAAAAA", "a" * 100])
def test_an_invalid_cursor_is_refused(client: TestClient, cursor: str) -> None:
    assert_problem(client.get(f"/v1/jobs?before={cursor}"), 422, "invalid-request", "before")


def test_a_full_queue_is_answered_with_a_time_to_retry(client: TestClient, body: Body) -> None:
    for _ in range(5):
        client.post("/v1/jobs", json=body)

    refused = client.post("/v1/jobs", json=body)

    assert_problem(refused, 429, "too-many-jobs")
    assert int(refused.headers["Retry-After"]) > 0


def test_deleting_a_waiting_job_cancels_it(client: TestClient, body: Body) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]

    answer = client.delete(address)

    assert answer.status_code == 200
    assert answer.json()["state"] == "cancelled"


def test_deleting_a_running_job_asks_it_to_stop(
    client: TestClient, engine: Engine, body: Body
) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]
    claim(engine, "worker", "cpu", 60.0)

    answer = client.delete(address)

    assert answer.status_code == 202
    assert answer.json()["state"] == "running"
    assert answer.json()["cancel_requested"] is True


def test_deleting_a_finished_job_removes_its_files(
    client: TestClient,
    finished: Callable,
    tmp_path: Path,
    keys_below: Callable[[Artifacts, str], list[str]],
) -> None:
    job = finished()
    artifacts: Artifacts = client.app.state.artifacts  # type: ignore[attr-defined]
    (tmp_path / "scores").write_bytes(b"abc")
    artifacts.put(tmp_path / "scores", f"jobs/{job.id}/a1/scores.parquet")

    answer = client.delete(f"/v1/jobs/{job.id}")

    assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(f"/v1/jobs/{job.id}").status_code == 404
    assert keys_below(artifacts, f"jobs/{job.id}") == []


def test_a_finished_job_links_to_what_it_has(client: TestClient, finished: Callable) -> None:
    job = finished()

    shown = client.get(f"/v1/jobs/{job.id}").json()

    assert shown["links"] == {
        "self": f"/v1/jobs/{job.id}",
        "events": f"/v1/jobs/{job.id}/events",
        "scores.parquet": f"/v1/jobs/{job.id}/scores.parquet",
        "scores": f"/v1/jobs/{job.id}/scores",
        "errors": f"/v1/jobs/{job.id}/errors",
        "score": f"/v1/gaussians/{job.id}/score",
    }
    assert shown["result"] == RESULT


@pytest.mark.parametrize("advice", [{}, {"remedy": "use another", "field": "backbone"}])
def test_a_failed_job_has_a_reason_and_where_known_a_remedy(
    client: TestClient, engine: Engine, body: Body, advice: dict[str, str]
) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]
    job = claim(engine, "worker", "cpu", 60.0)
    assert job is not None
    error = {"type": "backbone-error", "detail": "it is broken", **advice}
    assert fail(engine, job, error, retry_in=None)

    shown = client.get(address).json()["error"]

    assert shown == {"remedy": None, "field": None} | error


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dataset": {"root": "elsewhere", "path": ""}}, "dataset.root"),
        ({"dataset": {"root": "photos", "path": "../data"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "path": "/etc"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "path": "not there"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "path": "a\x00b"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "upload": "x"}}, "dataset"),
        ({"dataset": {"path": "train"}}, "dataset"),
        ({"dataset": {"upload": "x"}}, "dataset.upload"),
        ({"backbone": "clip-vit-b61"}, "backbone"),
        ({"backbone": "timm:../../secret"}, "backbone"),
        ({"backbone": "timm:local-dir:/etc"}, "backbone"),
        ({"backbone": "/etc/passwd"}, "backbone"),
        ({"scorers": []}, "scorers"),
        ({"scorers": ["mahalanobis"]}, "scorers.0"),
        ({"augment_runs": 65}, "augment_runs"),
        ({"augment_runs": "2"}, "augment_runs"),
        ({"seed": -1}, "seed"),
        ({"limit": 0}, "limit"),
        ({"shrinkage": 1.5}, None),
        ({"gaussians": "0" * 26}, "gaussians"),
        ({"on_error": "ignore"}, "on_error"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_invalid_request_is_refused_at_once(
    client: TestClient, body: Body, change: Body, field: str | None
) -> None:
    answer = client.post("/v1/jobs", json=body | change)

    assert_problem(answer, 422, "invalid-request", field)
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_a_link_out_of_the_root_is_as_if_it_were_not_there(
    client: TestClient, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (Path(settings.roots["photos"]) / "way-out").symlink_to(tmp_path / "outside")

    def refusal(path: str) -> dict[str, object]:
        answer = client.post("/v1/jobs", json={"dataset": {"root": "photos", "path": path}})
        assert_problem(answer, 422, "invalid-request", "dataset.path")
        return answer.json()

    assert refusal("way-out")["remedy"] == refusal("nothing")["remedy"]


def test_an_upload_has_to_be_complete(client: TestClient) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as opened:
        opened.writestr("cat/1.png", b"no image")
    content = data.getvalue()
    upload = client.post("/v1/uploads", json={"format": "zip", "size": len(content)}).json()
    address = upload["links"]["self"]
    client.put(address, content=content[:10])
    body = {"dataset": {"upload": upload["id"]}}

    early = client.post("/v1/jobs", json=body)
    client.put(f"{address}?offset=10", content=content[10:])
    later = client.post("/v1/jobs", json=body)

    assert_problem(early, 409, "conflict", "dataset.upload")
    assert later.status_code == 202


def test_gaussians_come_from_a_finished_job_with_the_same_backbone(
    client: TestClient, body: Body, finished: Callable
) -> None:
    source = finished()
    waiting = client.post("/v1/jobs", json=body).json()["id"]

    fits = client.post("/v1/jobs", json=body | {"gaussians": source.id})
    early = client.post("/v1/jobs", json=body | {"gaussians": waiting})
    other = client.post("/v1/jobs", json=body | {"gaussians": source.id, "backbone": "clip-rn50"})

    assert fits.status_code == 202
    assert_problem(early, 409, "conflict", "gaussians")
    assert_problem(other, 422, "invalid-request", "gaussians")


def test_only_backbones_that_are_offered_may_be_asked_for(tmp_path: Path, body: Body) -> None:
    (tmp_path / "photos" / "train").mkdir(parents=True)
    settings = Settings(
        data_dir=tmp_path / "data",
        roots={"photos": str(tmp_path / "photos")},
        backbones=("builtin", "timm:resnet18"),
        default_backbone="builtin",
    )

    with TestClient(create_app(settings), base_url="http://localhost") as client:
        offered = client.post("/v1/jobs", json=body | {"backbone": "timm:resnet18"})
        refused = client.post("/v1/jobs", json=body | {"backbone": "clip-rn50"})

    assert offered.status_code == 202
    assert_problem(refused, 422, "invalid-request", "backbone")


def assert_problem(response: Response, status: int, kind: str, field: str | None = None) -> None:
    assert response.status_code == status, response.text
    problem = response.json()
    assert problem["type"] == f"/problems/{kind}"
    assert problem["remedy"]
    if field is not None:
        assert problem["field"] == field
