"""Marks over HTTP: changed together, kept per key, exported for `difficulty clean`."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from httpx2 import Response
from sqlalchemy import event, func, select, text

from api.jobs import marks as stored
from api.jobs.marks import JobMarks
from api.jobs.queue import claim, succeed
from api.jobs.store import Job
from api.jobs.stored_result import StoredResult
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.tables import MARKS
from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import NO_MARKS, MarkedSample
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table
from tests.formulas import cells_that_run
from tests.service import ServiceClient, assert_problem

IDS = ["=cat/1.png", "\t=cat/2.png", "dog/3.png", "'\r=dog/4.png"]


@pytest.fixture
def result(result: dict[str, object], tmp_path: Path) -> dict[str, object]:
    """Result of a job with the classes cat and dog, whose score file is written."""
    table = score_table(
        [0, 0, 1, 1],
        ids=IDS,
        rmd=[4.0, 3.0, 2.0, 1.0],
        nearest_label=[1, 0, 1, 1],
        label_margin=[2.0, -1.0, -2.0, -3.0],
        percentile=[0.9, 0.6, 0.3, 0.0],
    )
    scores = tmp_path / "scores.parquet"
    write_scores(scores, table, Provenance.of({"class_names": ["cat", "dog"]}))
    return result | {"scores_sha256": hashlib.sha256(scores.read_bytes()).hexdigest()}


@pytest.fixture
def second_scores(result: dict[str, object], tmp_path: Path) -> Path:
    """Scores of the second round."""
    scores = read_scores(tmp_path / "scores.parquet")
    round_of = Provenance.of({"round": 2, "marks": {"relabel": 1, "drop": 1}})
    path = tmp_path / "second.parquet"
    write_scores(path, scores.table, scores.provenance.updated(round_of))
    result["scores_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return path


@pytest.fixture
def job(settings: Settings, finished: Callable[[], Job], tmp_path: Path) -> str:
    """Id of the finished job."""
    job = finished()
    artifacts = open_artifacts(settings.artifact_root)
    artifacts.put(tmp_path / "scores.parquet", f"jobs/{job.id}/a1/scores.parquet")
    return job.id


def decide(mark: str | None, label: str | None = None) -> dict[str, str | None] | None:
    return None if mark is None else {"mark": mark, "label": label}


def change(
    client: ServiceClient, job: str, sample_id: str, *decision: str | None, **fields: object
) -> int:
    """Changes one mark; returns the status of the answer."""
    change = {"sample_id": sample_id, "decision": decide(*decision), **fields}
    return client.post(f"/v1/jobs/{job}/marks", json={"marks": [change]}).status_code


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_exported_marks_are_read_by_clean(
    client: ServiceClient, job: str, tmp_path: Path, ending: str
) -> None:
    change(client, job, IDS[0], "relabel", "dog")
    change(client, job, IDS[2], "drop", order="random")

    path = tmp_path / f"marks.{ending}"
    path.write_bytes(client.get(f"/v1/jobs/{job}/marks.{ending}").content)

    marks = read_marks(path, IDS).samples
    assert [*marks.values()] == [
        MarkedSample(IDS[0], Mark.RELABEL, "dog", "cat", round=1),
        MarkedSample(IDS[2], Mark.DROP, None, "dog", order="random", round=1),
    ]


def test_no_spreadsheet_runs_an_exported_mark(
    client: ServiceClient, job: str, tmp_path: Path
) -> None:
    for sample_id in IDS:
        assert change(client, job, sample_id, "drop") == 200

    content = client.get(f"/v1/jobs/{job}/marks.csv").content

    assert cells_that_run(content.decode("utf-8-sig")) == []
    (tmp_path / "marks.csv").write_bytes(content)
    assert set(read_marks(tmp_path / "marks.csv", IDS).samples) == set(IDS)


def test_without_marks_the_export_is_an_empty_table(
    client: ServiceClient, job: str, tmp_path: Path
) -> None:
    (tmp_path / "marks.csv").write_bytes(client.get(f"/v1/jobs/{job}/marks.csv").content)

    assert read_marks(tmp_path / "marks.csv", IDS).samples == {}


def test_marks_are_listed_in_pages_and_counted(client: ServiceClient, job: str) -> None:
    for sample_id in IDS[:3]:
        change(client, job, sample_id, "keep")

    first = client.get(f"/v1/jobs/{job}/marks?limit=2").json()
    rest = client.get(f"/v1/jobs/{job}/marks?limit=2&after={first['next']}").json()

    assert [mark["sample_id"] for mark in first["marks"] + rest["marks"]] == IDS[:3]
    assert first["counts"] == {"keep": 3, "relabel": 0, "drop": 0, "misplaced": 0}
    assert rest["next"] is None


def test_a_mark_that_was_not_seen_is_a_conflict(client: ServiceClient, job: str) -> None:
    change(client, job, IDS[0], "keep")

    assert change(client, job, IDS[0], "drop", seen=None) == 409
    assert change(client, job, IDS[0], "drop", seen=decide("keep")) == 200
    assert change(client, job, IDS[0], "keep") == 200


@pytest.mark.parametrize(
    ("sample_id", "decision"),
    [
        ("nobody.png", ("keep",)),
        (IDS[0], ("relabel", "horse")),
        (IDS[0], ("relabel",)),
        (IDS[0], ("keep", "dog")),
        (IDS[0], ("maybe",)),
        (IDS[0], ("misplaced",)),  # they are no boxes
    ],
)
def test_an_impossible_mark_is_refused(
    client: ServiceClient, job: str, sample_id: str, decision: tuple[str, ...]
) -> None:
    assert change(client, job, sample_id, *decision) == 422


def test_one_impossible_mark_changes_nothing(client: ServiceClient, job: str) -> None:
    marks = [
        {"row": 0, "decision": decide("keep")},
        {"row": 9, "decision": decide("keep")},
    ]

    assert client.post(f"/v1/jobs/{job}/marks", json={"marks": marks}).status_code == 422
    assert client.get(f"/v1/jobs/{job}/marks").json()["marks"] == []


@pytest.mark.slow
def test_an_unfinished_job_has_no_marks(client: ServiceClient, body: dict[str, object]) -> None:
    job = client.post("/v1/jobs", json=body).json()["id"]
    assert claim(client.engine, "worker", "cpu", 60.0) is not None

    assert client.get(f"/v1/jobs/{job}/marks").status_code == 409


def submit_again(client: ServiceClient, source: str) -> Response:
    body = {"dataset": {"root": "photos", "path": "train"}, "marks": source}
    return client.post("/v1/jobs", json=body)


def test_a_job_keeps_the_marks_as_they_were_when_it_was_submitted(
    client: ServiceClient, job: str
) -> None:
    change(client, job, IDS[0], "relabel", "dog")
    change(client, job, IDS[1], "keep")
    change(client, job, IDS[2], "drop", order="random")

    submit_again(client, job)
    change(client, job, IDS[3], "drop")

    again = claim(client.engine, "worker", "cpu", 60.0)
    assert again is not None
    history = JobMarks(client.engine, again.id).read()
    assert history.earlier == NO_MARKS
    assert [*history.later.samples.values()] == [
        MarkedSample(IDS[0], Mark.RELABEL, "dog", "cat", round=1),
        MarkedSample(IDS[1], Mark.KEEP, None, "cat", round=1),
        MarkedSample(IDS[2], Mark.DROP, None, "dog", round=1, order="random"),
    ]


def test_the_marks_of_a_second_round_add_to_those_of_the_first(
    client: ServiceClient, job: str, result: dict[str, object], second_scores: Path
) -> None:
    change(client, job, IDS[0], "relabel", "dog")
    change(client, job, IDS[2], "drop")
    submit_again(client, job)
    second = claim(client.engine, "worker", "cpu", 60.0)
    assert second is not None
    prefix = f"jobs/{second.id}/a1"
    artifacts = client.services.artifacts
    artifacts.put(second_scores, f"{prefix}/scores.parquet")
    assert succeed(client.engine, second, StoredResult.of(result | {"prefix": prefix}))
    changes = [
        {"sample_id": IDS[0], "decision": decide("drop")},
        {"sample_id": IDS[1], "decision": decide("relabel", "dog")},
    ]
    client.post(f"/v1/jobs/{second.id}/marks", json={"marks": changes}).raise_for_status()

    submit_again(client, second.id)

    third = claim(client.engine, "worker", "cpu", 60.0)
    assert third is not None
    history = JobMarks(client.engine, third.id).read()
    first, dropped = history.earlier.samples.values()
    again, new = history.later.samples.values()
    assert first == MarkedSample(IDS[0], Mark.RELABEL, "dog", "cat", round=1)
    assert dropped == MarkedSample(IDS[2], Mark.DROP, None, "dog", round=1)
    assert again.choice == (Mark.DROP, None)
    assert new == MarkedSample(IDS[1], Mark.RELABEL, "dog", "cat", round=2)


def test_without_marks_there_is_no_reason_to_score_again(client: ServiceClient, job: str) -> None:
    assert_problem(submit_again(client, job), 422, "invalid-request", "marks")


def test_the_marks_of_a_job_that_does_not_exist_or_is_not_finished_are_refused(
    client: ServiceClient,
) -> None:
    queued = client.post("/v1/jobs", json={"dataset": {"root": "photos", "path": "train"}})

    assert_problem(submit_again(client, "0" * 26), 422, "invalid-request", "marks")
    assert_problem(submit_again(client, queued.json()["id"]), 409, "conflict", "marks")


@pytest.mark.slow
def test_marking_all_that_is_interrupted_says_how_many_are_marked_and_is_done_again(
    client: ServiceClient, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "AT_A_TIME", 2)
    address = f"/jobs/{job}/images/mark-matching?sort=file"
    rename = "ALTER TABLE {} RENAME TO {}"
    stored_parts: list[int] = []

    def take_away(*_: object) -> None:
        with client.engine.connect() as connection:
            stored_parts.append(connection.scalar(select(func.count()).select_from(MARKS)) or 0)
        if stored_parts[-1]:
            event.remove(client.engine, "commit", note)
            with client.engine.begin() as connection:
                connection.execute(text(rename.format("marks", "away")))

    def note(_: object) -> None:
        event.listen(client.engine, "checkin", take_away, once=True)

    event.listen(client.engine, "commit", note)
    interrupted = client.post(address, data={"mark": "drop"})
    with client.engine.begin() as connection:
        connection.execute(text(rename.format("away", "marks")))
    client.post(address, data={"mark": "drop"}).raise_for_status()

    assert_problem(interrupted, 503, "unavailable")
    problem = interrupted.json()
    assert problem["detail"] == "2 of 4 samples were marked: the database does not answer"
    assert problem["remedy"] == "try again later; then mark the same again"
    assert client.get(f"/v1/jobs/{job}/marks").json()["counts"]["drop"] == 4
