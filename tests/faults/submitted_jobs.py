"""The jobs of a campaign: submitted, awaited, compared with undisturbed ones, and deleted."""

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TypeVar

import httpx2
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from api.jobs.files import SCORES_FILE, delete_left_files, finish_deletions
from api.jobs.store import counts, events_after, get_job
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.identity import MARKER
from api.storage.tables import JOBS
from difficulty_service.bodies.jobs import FINAL_STATES
from tests.small_network import SLOW

POLL_SECONDS = 0.02
STUCK_SECONDS = 180.0  # without any fault

Answer = TypeVar("Answer")


@dataclass
class Tally:
    """How the jobs of a campaign ended.

    Attributes:
        jobs: Jobs that the service has accepted.
        attempts: Attempts at them.
        overtaken: Pauses after which another worker had the job, or had ended it.
        lost: Jobs that are gone, or ended otherwise than by success.
        doubled: Jobs that ended twice, and jobs that no client knows.
        stuck: Jobs that did not end.
        wrong: Jobs whose scores differ from those of an undisturbed run in any byte.
        left: Files of deleted jobs.
    """

    jobs: int = 0
    attempts: int = 0
    overtaken: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    wrong: int = 0
    left: int = 0

    def add(self, other: "Tally") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def faults(self) -> dict[str, int]:
        """Everything that must be zero."""
        names = ("lost", "doubled", "stuck", "wrong", "left")
        return {name: number for name in names if (number := getattr(self, name))}


@dataclass
class SubmittedJobs:
    """The jobs that a client has submitted and not yet deleted.

    Attributes:
        client: Client of the server.
        engine: The database.
        settings: Settings of the service.
        datasets: Datasets whose scores are asked for in turn.
        number: Number of jobs so far, of which each has a key of its own.
        jobs: Dataset of each job, by its id.
        paused: Id and attempt of each job whose worker was paused.
    """

    client: httpx2.Client
    engine: Engine
    settings: Settings
    datasets: tuple[str, ...]
    number: int = 0
    jobs: dict[str, str] = field(default_factory=dict)
    paused: list[tuple[str, int]] = field(default_factory=list)

    def submit(self) -> None:
        """Submits until there is an answer; the idempotency key prevents a second job."""
        dataset = self.datasets[self.number % len(self.datasets)]
        self.number += 1
        body = {
            "dataset": {"root": "root", "path": dataset},
            "backbone": SLOW,
            "shrinkage": "ledoit-wolf",
        }
        key = {"Idempotency-Key": f"job {self.number}"}
        answer = answered(lambda: self.client.post("/v1/jobs", json=body, headers=key))
        assert answer.is_success, answer.text
        self.jobs[str(answer.json()["id"])] = dataset

    def keep_waiting(self, number: int) -> None:
        """Submits until so many jobs are unfinished."""
        while self.unfinished() < number:
            self.submit()

    def unfinished(self) -> int:
        found = asked(lambda: counts(self.engine))
        return found["queued"] + found["running"]

    def running(self) -> dict[str, tuple[str, int]]:
        """Id and attempt of each running job, by the id of its worker."""
        query = select(JOBS.c.worker, JOBS.c.id, JOBS.c.attempt).where(JOBS.c.state == "running")

        def rows() -> dict[str, tuple[str, int]]:
            with self.engine.connect() as connection:
                return {row.worker: (row.id, row.attempt) for row in connection.execute(query)}

        return asked(rows)

    def wait(self) -> None:
        """Waits for the end of all jobs, but not for ever."""
        end = time.monotonic() + STUCK_SECONDS
        while self.unfinished() and time.monotonic() < end:
            time.sleep(POLL_SECONDS)

    def scores(self) -> dict[str, str]:
        """SHA-256 of the scores of each dataset; all must have been scored."""
        return {dataset: self._scores(job_id) for job_id, dataset in self.jobs.items()}

    def settle(self, expected: Mapping[str, str]) -> Tally:
        """Waits for all jobs, compares them with `expected`, and deletes them."""
        self.wait()
        tally = Tally(jobs=len(self.jobs))
        rows = select(func.count()).select_from(JOBS)
        with self.engine.connect() as connection:
            tally.doubled += abs(connection.execute(rows).scalar_one() - len(self.jobs))
        for job_id, attempt in self.paused:
            job = get_job(self.engine, None, job_id)
            tally.overtaken += job is not None and job.attempt > attempt
        self.paused.clear()
        for job_id, dataset in self.jobs.items():
            tally.add(self._judge(job_id, expected[dataset]))
        tally.left = self.delete()
        return tally

    def delete(self) -> int:
        """Deletes all jobs; gives the number of files that are left."""
        for job_id in self.jobs:
            answered(lambda path=f"/v1/jobs/{job_id}": self.client.delete(path))  # type: ignore[misc]
        self.jobs.clear()
        artifacts = open_artifacts(self.settings.artifact_root)
        # What workers do every ten minutes.
        finish_deletions(self.engine, self.settings, artifacts)
        delete_left_files(self.engine, self.settings, artifacts)
        files = [path for path in self.settings.data_dir.rglob("*") if path.is_file()]
        return sum(not path.name.startswith(("difficulty.sqlite", MARKER)) for path in files)

    def _judge(self, job_id: str, expected: str) -> Tally:
        job = get_job(self.engine, None, job_id)
        if job is None:
            return Tally(lost=1)
        events = events_after(self.engine, job_id, 0, 10_000)
        states = [event.data["state"] for event in events if event.kind == "state"]
        return Tally(
            attempts=job.attempt,
            lost=job.state in ("failed", "cancelled"),
            stuck=job.state in ("queued", "running"),
            doubled=sum(state in FINAL_STATES for state in states) > 1,
            wrong=job.state == "succeeded" and self._scores(job_id) != expected,
        )

    def _scores(self, job_id: str) -> str:
        """SHA-256 of the published scores of a job, or why there is none."""
        job = get_job(self.engine, None, job_id)
        if job is None or job.result is None:
            return "not published"
        artifacts = open_artifacts(self.settings.artifact_root)
        try:
            with artifacts.open(f"{job.result.prefix}/{SCORES_FILE}") as file:
                found = hashlib.sha256(file.read()).hexdigest()
        except FileNotFoundError:
            return "published, but deleted"
        return found if found == job.result.scores_sha256 else f"not as recorded: {found}"


def asked(question: Callable[[], Answer]) -> Answer:
    """Calls a function of the database until it answers."""
    while True:
        with suppress(SQLAlchemyError):
            return question()
        time.sleep(POLL_SECONDS)


def answered(request: Callable[[], httpx2.Response]) -> httpx2.Response:
    """Repeats a request until the server answers it without an error of its own."""
    while True:
        with suppress(httpx2.TransportError):
            answer = request()
            if not answer.is_server_error:
                return answer
        time.sleep(POLL_SECONDS)
