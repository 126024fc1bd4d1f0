"""The jobs of a database, in the state that a test needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from api.jobs.queue import Progress, claim, heartbeat, succeed
from api.jobs.store import Job, SubmitLimits, events_after, get_job, submit
from api.storage.database import write_transaction
from api.storage.tables import JOBS
from tests.api.stored_results import stored_result

REQUEST = {"dataset": {"root": "photos", "path": "train"}}
HALFWAY = Progress(done=5, total=10, bad=1, rate=2.5)


@dataclass(frozen=True)
class Queue:
    """Jobs of a database, in the state that a test needs."""

    engine: Engine  # the database

    def submit(
        self,
        owner: str = "owner",
        key: str | None = None,
        *,
        request: Mapping[str, Any] = REQUEST,
        max_attempts: int = 3,
    ) -> Job:
        """A queued job."""
        return submit(self.engine, owner, request, key, SubmitLimits(1000, max_attempts))[0]

    def claim(self, worker: str = "worker") -> Job:
        """The next job, claimed for an hour."""
        job = claim(self.engine, worker, "cpu", 3600.0)
        assert job is not None
        return job

    def heartbeat(self, job: Job) -> str:
        """A heartbeat halfway through the job."""
        return heartbeat(self.engine, job, 3600.0, HALFWAY)

    def finish(self, owner: str = "owner") -> Job:
        """A job that has succeeded, as it was claimed."""
        self.submit(owner)
        job = self.claim()
        assert succeed(self.engine, job, stored_result())
        return job

    def stored(self, job: Job) -> Job:
        """The job as the database has it now."""
        stored = get_job(self.engine, None, job.id)
        assert stored is not None
        return stored

    def set_columns(self, job: Job, **columns: Any) -> None:  # noqa: ANN401 - of any type
        """Overwrites columns of the job."""
        with write_transaction(self.engine) as connection:
            connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(columns))

    def expire_lease(self, job: Job) -> None:
        """Makes the worker of the job look dead."""
        self.set_columns(job, lease_until=1000.0)

    def events(self, job: Job) -> list[tuple[str, Mapping[str, Any]]]:
        """Kind and data of all events of the job."""
        return [(event.kind, event.data) for event in events_after(self.engine, job.id, 0, 1000)]

    def states(self, job: Job) -> list[str]:
        """The states of the job, in order."""
        return [data["state"] for kind, data in self.events(job) if kind == "state"]
