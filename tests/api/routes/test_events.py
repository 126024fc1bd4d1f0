"""A client that follows a job gets every event once, also after a broken connection."""

import itertools
import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import Engine, delete, update

from api.http.api_keys import KeyWatch
from api.http.event_streams import EventStreams
from api.http.problems import Problem
from api.jobs.queue import Progress, claim, heartbeat, succeed
from api.jobs.reviewers import share_job, unshare_job
from api.jobs.store import Job, SubmitLimits, request_cancel, submit
from api.storage.keys import Key, change_key, revoke_key
from api.storage.tables import JOBS, KEYS
from tests.api.stored_results import stored_result
from tests.service import ServiceClient, share

Event = dict[str, object]


@pytest.fixture
def job(engine: Engine) -> Job:
    """A job with a worker."""
    submit(engine, "", {"dataset": {}}, None, SubmitLimits(10, 3))
    job = claim(engine, "worker", "cpu", 60.0)
    assert job is not None
    return job


def work(engine: Engine, job: Job, batches: int) -> None:
    for done in range(batches):
        heartbeat(engine, job, 60.0, Progress(done + 1, batches, 0, 1.0))
    succeed(engine, job, stored_result())


def read(client: ServiceClient, job: Job, last_id: int | None = None) -> list[Event]:
    headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
    answer = client.get(f"/v1/jobs/{job.id}/events", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    blocks = [block for block in answer.text.split("\n\n") if block]
    fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    return [
        {"id": int(each["id"]), "kind": each["event"], **json.loads(each["data"])}
        for each in fields
    ]


def test_a_finished_job_has_its_whole_history_and_then_ends(
    client: ServiceClient, job: Job
) -> None:
    work(client.engine, job, batches=3)

    events = read(client, job)

    assert [each["state"] for each in events if each["kind"] == "state"] == [
        "queued",
        "running",
        "succeeded",
    ]
    assert [each["done"] for each in events if each["kind"] == "progress"] == [1, 2, 3]


def test_reading_on_after_an_event_misses_none_and_repeats_none(
    client: ServiceClient, job: Job
) -> None:
    work(client.engine, job, batches=3)
    events = read(client, job)

    for position, event in enumerate(events[:-1]):
        assert read(client, job, int(str(event["id"]))) == events[position + 1 :]


def test_a_client_with_the_last_event_is_told_not_to_reconnect(
    client: ServiceClient, job: Job
) -> None:
    work(client.engine, job, batches=1)
    last = read(client, job)[-1]["id"]

    assert client.get(f"/v1/jobs/{job.id}/events?after={last}").status_code == 204


def test_events_arrive_while_the_job_runs(client: ServiceClient, job: Job) -> None:
    worker = threading.Thread(target=work, args=(client.engine, job, 2))

    worker.start()
    events = read(client, job)
    worker.join()

    assert events[-1]["state"] == "succeeded"


def test_a_stream_ends_when_its_job_is_cancelled_before_it_began(client: ServiceClient) -> None:
    waiting, _ = submit(client.engine, "", {"dataset": {}}, None, SubmitLimits(10, 3))
    timer = threading.Timer(0.2, request_cancel, (client.engine, "", waiting.id))

    timer.start()
    events = read(client, waiting)
    timer.join()

    assert events[-1]["state"] == "cancelled"


def test_a_stream_ends_when_the_server_is_about_to(client: ServiceClient, job: Job) -> None:
    looks = itertools.count()
    share(client, replace(client.services, is_stopping=lambda: next(looks) > 0))

    events = read(client, job)

    assert [each["state"] for each in events] == ["queued", "running"]


@pytest.mark.parametrize(
    "value",
    ["x", "-1", "1.5", "9" * 19, "9" * 5000, "0" * 20 + "9" * 30, "0" * 20 + "9" * 5000, "\u0661"],
)
def test_an_invalid_event_id_is_refused(client: ServiceClient, job: Job, value: str) -> None:
    headers = {"Last-Event-ID": value.encode()}

    answer = client.get(f"/v1/jobs/{job.id}/events", headers=headers)

    assert answer.status_code == 422
    assert answer.json()["field"] == "Last-Event-ID"


def test_no_key_opens_more_than_its_share_of_streams() -> None:
    streams = EventStreams(share=2)

    with streams.opened("one"), streams.opened("one"):
        with pytest.raises(Problem, match="2 event streams"), streams.opened("one"):
            pass
        with streams.opened("two"):
            pass

    with streams.opened("one"), streams.opened("one"):
        pass


def test_ten_keys_with_all_streams_leave_those_of_others_their_place() -> None:
    streams = EventStreams(share=20)
    with ExitStack() as stack:
        taken = [
            stack.enter_context(streams.opened(f"key{number}"))
            for number in range(10)
            for _ in range(20)
        ]

        others = [
            stack.enter_context(streams.opened(f"other{number}"))
            for number in range(3)
            for _ in range(2)
        ]

        assert sum(stream.makes_room for stream in taken) == 6
        assert [taken.index(stream) % 20 for stream in taken if stream.makes_room] == [0] * 6
        assert not any(stream.makes_room for stream in others)
        with pytest.raises(Problem, match="made room"):
            taken[0].check()

    with streams.opened("key0") as again:
        again.check()


def test_keys_with_as_many_streams_as_others_displace_none() -> None:
    streams = EventStreams(share=2, most=3)
    with ExitStack() as stack:
        opened = [stack.enter_context(streams.opened(owner)) for owner in ("one", "two", "two")]

        opened.append(stack.enter_context(streams.opened("three")))

        assert [each.makes_room for each in opened] == [False, True, False, False]
        for owner in ("two", "four"):
            with pytest.raises(Problem, match="all 3 event streams"), streams.opened(owner):
                pass


def test_a_stream_that_makes_room_says_so_and_ends(client: ServiceClient, job: Job) -> None:
    streams = EventStreams(share=2, most=2)
    share(client, replace(client.services, event_streams=streams))
    answers = []
    follower = threading.Thread(
        target=lambda: answers.append(client.get(f"/v1/jobs/{job.id}/events").text)
    )
    follower.start()
    while not streams.number_of(""):
        time.sleep(0.01)

    with streams.opened(""), streams.opened("other"):
        follower.join()

    assert "event: problem" in answers[0]
    assert "/problems/too-many-requests" in answers[0]


def test_a_key_with_too_many_streams_is_refused_until_one_ends(
    client: ServiceClient, job: Job
) -> None:
    streams = EventStreams(share=1)
    share(client, replace(client.services, event_streams=streams))
    with streams.opened(""):
        refused = client.get(f"/v1/jobs/{job.id}/events")
    work(client.engine, job, batches=1)

    for _ in range(2):
        assert read(client, job)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["type"] == "/problems/too-many-requests"


def test_no_proxy_may_store_or_hold_back_the_stream(client: ServiceClient, job: Job) -> None:
    work(client.engine, job, batches=1)

    headers = client.get(f"/v1/jobs/{job.id}/events").headers

    assert "no-store" in headers["Cache-Control"]
    assert headers["X-Accel-Buffering"] == "no"


def unshare(engine: Engine, job: Job, key: Key) -> None:
    unshare_job(engine, job.id, key.id)


def take_root(engine: Engine, _: Job, key: Key) -> None:
    change_key(engine, key.id, lambda terms: replace(terms, roots=frozenset({"other"})))


def take_scope(engine: Engine, _: Job, key: Key) -> None:
    with engine.begin() as connection:
        connection.execute(update(KEYS).where(KEYS.c.id == key.id).values(scopes="read"))


def revoke(engine: Engine, _: Job, key: Key) -> None:
    revoke_key(engine, key.id)


def delete_job(engine: Engine, job: Job, _: Key) -> None:
    # As when it was cancelled and deleted since the stream looked last.
    with engine.begin() as connection:
        connection.execute(delete(JOBS).where(JOBS.c.id == job.id))


Loss = tuple[str, Callable[[Engine, Job, Key], None], str]
LOSSES: list[Loss] = [
    ("colleague", unshare, "not-found"),
    ("colleague", take_root, "unauthorised"),
    ("colleague", revoke, "unauthorised"),
    ("colleague", delete_job, "not-found"),
    ("overseer", take_scope, "not-found"),
    ("owner", take_root, "unauthorised"),
]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_stream_ends_with_a_problem_once_its_key_does_not_see_the_job(
    client: ServiceClient,
    keys: dict[str, tuple[Key, str]],
    body: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    loss: Loss,
) -> None:
    name, lose, problem = loss
    monkeypatch.setattr("api.routes.events.KeyWatch", partial(KeyWatch, every=0.0))
    submit(client.engine, keys["owner"][0].id, body, None, SubmitLimits(10, 3))
    job = claim(client.engine, "worker", "cpu", 60.0)
    assert job is not None
    key, secret = keys[name]
    share_job(client.engine, job.id, keys["colleague"][0].id)
    address, headers = f"/v1/jobs/{job.id}/events", {"X-API-Key": secret}
    answers = []
    follower = threading.Thread(
        target=lambda: answers.append(client.get(address, headers=headers).text)
    )
    follower.start()
    while not client.services.event_streams.number_of(key.id):
        time.sleep(0.01)

    lose(client.engine, job, key)
    work(client.engine, job, batches=2)  # nothing where it is deleted
    follower.join()

    last = answers[0].strip().split("\n\n")[-1]
    assert last.startswith("event: problem")
    assert f"/problems/{problem}" in last
    assert "succeeded" not in answers[0]
    assert client.services.event_streams.number_of(key.id) == 0
