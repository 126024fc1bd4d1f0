"""A key that marks all samples of a large job again and again keeps nobody else from writing.

SQLite has one writer at a time, and whoever waits for it looks again every tenth of a second.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from api.routes.marks import MOST_AT_ONCE
from tests.api.live.many_samples import imported_job, scores_of_many_samples
from tests.api.live.running import StartService

CLIENTS = 2  # of the key that marks: while one reads its answer, the other one is at work
SUBMISSIONS = 100
PARTS = 20  # of a marking at least, each with a pause behind it
ACCEPTED, MARKED = 202, 303
JOB = {"dataset": {"root": "photos", "path": "train"}}


@pytest.mark.long
def test_another_key_submits_jobs_between_the_parts_of_many_marks(
    start_service: StartService, sqlite_url: str, tmp_path: Path
) -> None:
    service = start_service(sqlite_url, max_queued_jobs=2 * SUBMISSIONS)
    attacker, other = service.new_key("attacker"), service.new_key("other")
    content = scores_of_many_samples(tmp_path / "scores.parquet", MOST_AT_ONCE)
    address = f"/jobs/{imported_job(service, content, 'attacker')}/images/mark-matching"
    is_marking, is_over = Event(), Event()

    def mark_again_and_again() -> list[int]:
        statuses = []
        with service.client(attacker) as client:
            while not is_over.is_set():
                mark = ("drop", "keep")[len(statuses) % 2]
                is_marking.set()
                statuses.append(client.post(address, data={"mark": mark}).status_code)
        return statuses

    with ThreadPoolExecutor(CLIENTS) as threads, service.client(other) as client:
        marking = [threads.submit(mark_again_and_again) for _ in range(CLIENTS)]
        is_marking.wait()
        submitted = [client.post("/v1/jobs", json=JOB).status_code for _ in range(SUBMISSIONS)]
        is_over.set()
    marked = [status for each in marking for status in each.result()]

    assert {*submitted} == {ACCEPTED}
    assert {*marked} == {MARKED}
    # Of the markings, one of each client had not ended before the last submission.
    assert (len(marked) - CLIENTS) * PARTS < SUBMISSIONS
