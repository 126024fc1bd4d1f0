"""Jobs over HTTP: submitted once, listed in pages, cancelled, deleted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from api.jobs.queue import Progress, claim, fail, heartbeat
from difficulty_service.bodies.jobs import JobError
from tests.api.stored_results import keys_below
from tests.service import ServiceClient, assert_problem

Body = dict[str, object]


def test_a_submitted_job_is_queued_at_its_location(client: ServiceClient, body: Body) -> None:
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
        "download": None,
    }


def test_the_same_idempotency_key_and_body_give_the_same_job(
    client: ServiceClient, body: Body
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
    client: ServiceClient, body: Body
) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]
    job = claim(client.engine, "worker", "cpu", 60.0)
    assert job is not None
    heartbeat(client.engine, job, 60.0, Progress(30, 100, 2, 10.0))

    shown = client.get(address).json()

    assert shown["state"] == "running"
    assert shown["attempts"] == 1
    assert shown["progress"] == {
        "done": 30,
        "total": 100,
        "bad": 2,
        "rate": 10.0,
        "seconds_left": 7.0,
        "download": None,
    }


def test_pages_show_every_job_once_newest_first(client: ServiceClient, body: Body) -> None:
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


def test_jobs_are_listed_by_state(client: ServiceClient, body: Body, finished: Callable) -> None:
    done = finished()
    waiting = client.post("/v1/jobs", json=body).json()["id"]

    def listed(state: str) -> list[str]:
        return [job["id"] for job in client.get(f"/v1/jobs?state={state}").json()["jobs"]]

    assert listed("succeeded") == [done.id]
    assert listed("queued") == [waiting]
    assert client.get("/v1/jobs?state=lost").status_code == 422


@pytest.mark.parametrize("cursor", ["x", "%F0%9F%98%80", "AAAA", "f_gAAAAAAAA", "a" * 100])
def test_an_invalid_cursor_is_refused(client: ServiceClient, cursor: str) -> None:
    assert_problem(client.get(f"/v1/jobs?before={cursor}"), 422, "invalid-request", "before")


def test_a_full_queue_is_answered_with_a_time_to_retry(client: ServiceClient, body: Body) -> None:
    for _ in range(5):
        client.post("/v1/jobs", json=body)

    refused = client.post("/v1/jobs", json=body)

    assert_problem(refused, 429, "too-many-jobs")
    assert int(refused.headers["Retry-After"]) > 0


def test_deleting_a_waiting_job_cancels_it(client: ServiceClient, body: Body) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]

    answer = client.delete(address)

    assert answer.status_code == 200
    assert answer.json()["state"] == "cancelled"


def test_deleting_a_running_job_asks_it_to_stop(client: ServiceClient, body: Body) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]
    claim(client.engine, "worker", "cpu", 60.0)

    answer = client.delete(address)

    assert answer.status_code == 202
    assert answer.json()["state"] == "running"
    assert answer.json()["cancel_requested"] is True


def test_deleting_a_finished_job_removes_its_files(
    client: ServiceClient, finished: Callable, tmp_path: Path
) -> None:
    job = finished()
    artifacts = client.services.artifacts
    (tmp_path / "scores").write_bytes(b"abc")
    artifacts.put(tmp_path / "scores", f"jobs/{job.id}/a1/scores.parquet")

    answer = client.delete(f"/v1/jobs/{job.id}")

    assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(f"/v1/jobs/{job.id}").status_code == 404
    assert keys_below(artifacts, f"jobs/{job.id}") == []


@pytest.mark.slow
def test_a_finished_job_links_to_what_it_has(
    client: ServiceClient, finished: Callable, result: Body
) -> None:
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
    assert shown["result"] == result


@pytest.mark.parametrize("advice", [{}, {"remedy": "use another", "field": "backbone"}])
def test_a_failed_job_has_a_reason_and_where_known_a_remedy(
    client: ServiceClient, body: Body, advice: dict[str, str]
) -> None:
    address = client.post("/v1/jobs", json=body).headers["Location"]
    job = claim(client.engine, "worker", "cpu", 60.0)
    assert job is not None
    error = {"type": "backbone-error", "detail": "it is broken", **advice}
    assert fail(client.engine, job, JobError.of(error), retry_in=None)

    shown = client.get(address).json()["error"]

    assert shown == {"remedy": None, "field": None} | error
