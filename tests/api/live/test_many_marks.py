"""Many marks of one key stop neither its own pages nor the requests of another key.

DIFFICULTY_MARKS is how many; `make fuzz` makes a million.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from api.storage.database import connect, write_transaction
from difficulty_service.scores.file import ScoreFile
from tests.api.live.many_samples import imported_job, scores_of_many_samples
from tests.api.live.running import Service, StartService

MARKS = int(os.environ.get("DIFFICULTY_MARKS", "200000"))
AT_ONCE = 6
ROOM = (62 << 20) + 240 * MARKS  # bytes that the server may grow by
OK, ACCEPTED, TOO_MANY = 200, 202, 429
PAGES = ("", "/images", "/images?mark=drop", "/images/0", "/classes", "/pairs", "/map", "/tray")

INSERT = text(
    """
    WITH RECURSIVE numbers(row) AS
        (SELECT 0 UNION ALL SELECT row + 1 FROM numbers WHERE row + 1 < :marks)
    INSERT INTO marks (job, owner, row, sample_id, mark, label, "order", at)
    SELECT :job, jobs.owner, row, printf('photographs/%012d.jpeg', row),
        CASE row % 2 WHEN 0 THEN 'drop' ELSE 'keep' END, NULL, '', 0
    FROM numbers JOIN jobs ON jobs.id = :job
    """
)


def rows_of(answer: httpx2.Response) -> pa.Table:
    """The marks in a file of either kind."""
    file = pa.BufferReader(answer.content)
    if answer.headers["Content-Type"].startswith("text/csv"):
        return pyarrow.csv.read_csv(file)
    return pq.read_table(file)


def add_job_with_marks(service: Service, content: ScoreFile, owner: str) -> str:
    """Id of a new job of a key, every sample of which is marked."""
    job = imported_job(service, content, owner)
    engine = connect(service.environment["DIFFICULTY_DATABASE_URL"])
    with write_transaction(engine) as connection:
        connection.execute(INSERT, {"marks": MARKS, "job": job})
    engine.dispose()
    return job


@pytest.mark.long
def test_many_marks_are_shown_and_sent_without_filling_the_server(
    start_service: StartService, sqlite_url: str, tmp_path: Path
) -> None:
    service = start_service(sqlite_url)
    mine, theirs = service.new_key("mine"), service.new_key("theirs")
    job = add_job_with_marks(
        service, scores_of_many_samples(tmp_path / "scores.parquet", MARKS), "mine"
    )

    def get(address: str) -> httpx2.Response:
        with service.client(mine) as client:
            return client.get(address, headers={"Accept": "text/html"})

    pages = [get(f"/jobs/{job}{page}") for page in PAGES]
    before = service.peak_memories()
    files = [f"/v1/jobs/{job}/marks.{ending}" for ending in ("csv", "parquet")]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = [threads.submit(get, files[number % 2]) for number in range(AT_ONCE)]
        with service.client(theirs) as client:
            answered = [client.get("/v1/jobs").status_code for _ in range(20)]
            is_early = not all(each.done() for each in asked)
        answers = [each.result() for each in asked]
    again = {"dataset": {"root": "photos", "path": "train"}, "marks": job}
    with service.client(mine) as client:
        submitted = client.post("/v1/jobs", json=again)

    assert {page.status_code for page in pages} == {OK}
    assert f"{MARKS:,}" in pages[0].text
    assert ({answer.status_code for answer in answers}, is_early) == ({OK, TOO_MANY}, True)
    whole = [answer for answer in answers if answer.status_code == OK]
    assert {len(rows_of(answer)) for answer in whole} == {MARKS}
    assert set(answered) == {OK}
    assert submitted.status_code == ACCEPTED
    assert service.growth_since(before) < ROOM
