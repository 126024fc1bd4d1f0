"""The list of jobs tells them apart, and says what each does and how to go on."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.jobs.marks import SampleMark, set_marks
from api.jobs.queue import Progress, claim, fail, heartbeat
from api.jobs.store import (
    Job,
    SubmitLimits,
    begin_deletion,
    end_deletion,
    list_jobs,
    submit,
)
from difficulty_service.bodies.jobs import JobError
from difficulty_service.marks.mark_kinds import Mark
from tests.service import ServiceClient, client_of

BODY = {"dataset": {"root": "photos"}, "backbone": "builtin"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}
    with client_of(tmp_path / "data", follow_redirects=False, roots=roots) as client:
        yield client


@pytest.fixture
def engine(client: ServiceClient) -> Engine:
    return client.engine


def queued(engine: Engine, **options: object) -> Job:
    return submit(engine, "", {**BODY, **options}, None, SubmitLimits(9, 1))[0]


def claimed(engine: Engine) -> Job:
    job = claim(engine, "worker", "cpu", 60.0)
    assert job is not None
    return job


def described(client: ServiceClient) -> list[str]:
    """What the list says of each job besides its name and age."""
    lines = re.findall(r"<p>(builtin.*?) · [^·]* ago</p>", client.get("/").text)
    return [" ".join(line.split()) for line in lines]


def test_jobs_of_one_folder_are_told_apart(client: ServiceClient) -> None:
    first = queued(client.engine)
    second = queued(client.engine, marks=first.id, scorers=["rmd", "agree"], limit=100, flip=True)
    queued(client.engine, marks=second.id)
    set_marks(client.engine, "", second.id, {3: SampleMark(3, "a", Mark.KEEP)}, {})
    before = described(client)
    with client.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET state = 'failed'")
    assert begin_deletion(client.engine, "", first.id)
    end_deletion(client.engine, first.id)

    after = described(client)

    options = "builtin · limit 100, scorers rmd+agree, flip"
    assert before == ["builtin · round 3", f"{options} · round 2 · 1 mark", "builtin"]
    assert after == ["builtin", f"{options} · 1 mark"]  # the rounds before are not known


def test_a_failed_job_is_tried_again_with_the_same_settings(client: ServiceClient) -> None:
    queued(client.engine, limit=7)
    running = claimed(client.engine)
    early = client.post(f"/jobs/{running.id}/try-again", data={"token": "1"})
    fail(client.engine, running, JobError(type="x", detail="the disk is full"), retry_in=None)
    page, jobs = client.get(f"/jobs/{running.id}").text, client.get("/").text

    token = re.findall(r'name="token" value="([^"]*)"', page)[0]
    answers = [
        client.post(f"/jobs/{running.id}/try-again", data={"token": token}) for _ in range(2)
    ]

    assert "Try again" in page
    assert f'action="/jobs/{running.id}/try-again"' in jobs
    assert early.status_code == 409
    newest, _ = list_jobs(client.engine, "", limit=9)
    assert [each.headers["location"] for each in answers] == [f"/jobs/{newest.id}"] * 2
    assert (newest.state, newest.wanted.limit) == ("queued", 7)
    assert "Try again" not in client.get(f"/jobs/{newest.id}").text


def test_a_running_job_says_what_it_does_where_it_has_no_counts(client: ServiceClient) -> None:
    queued(client.engine)
    running = claimed(client.engine)
    seen = []
    for done, total in ((0, None), (3, 10), (10, 10)):
        heartbeat(client.engine, running, 60.0, Progress(done, total, 0, None))
        page = " ".join(client.get(f"/jobs/{running.id}").text.split())
        title = re.findall(r"<h1[^>]*>(.*?)</h1>", page)
        seen += [(*title, *re.findall(r"<small>(.*?)</small>", client.get("/").text)[:1])]
        assert "0 images" not in page.replace("10 images", "")

    loading = "isting the dataset and loading the network"
    assert seen == [
        (f"L{loading}", f"l{loading}"),
        ("Looking at the images", "3 of 10"),
        ("Fitting and scoring", "fitting and scoring"),
    ]
