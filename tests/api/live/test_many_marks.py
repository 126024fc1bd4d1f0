"""Many marks of one key stop neither its own pages nor the requests of another key.

DIFFICULTY_MARKS is how many; `make fuzz` makes a million.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from api.imported import import_scores
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import open_database, write_transaction
from api.storage.keys import list_keys
from api.storage.tables import JOBS
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance

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


def scores_of_many_samples(path: Path) -> ScoreFile:
    """Scores without images behind them."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, MARKS)
    names = pa.array(["bird", "cat", "dog"])
    margins = generator.standard_normal(MARKS)
    columns = {
        "sample_id": [f"photographs/{row:012d}.jpeg" for row in range(MARKS)],
        "label": labels,
        "label_name": names.take(pa.array(labels)),
        "rmd": generator.standard_normal(MARKS),
        "md_agnostic": generator.gamma(50, 2, MARKS),
        "nearest_label": np.where(margins > 0, (labels + 1) % 3, labels),
        "label_margin": margins,
        "percentile": np.linspace(0, 1, MARKS),
    }
    write_scores(
        path,
        pa.table(columns),
        Provenance.of({"class_names": names.to_pylist(), "dataset": "photos"}),
    )
    return read_scores(path)


def add_job_with_marks(service: Any, content: ScoreFile, owner: str) -> str:  # noqa: ANN401
    """Id of a new job of a key, every sample of which is marked."""
    environment = service.environment
    settings = Settings(
        data_dir=environment["DIFFICULTY_DATA_DIR"],
        database_url=environment["DIFFICULTY_DATABASE_URL"],
    )
    with open_database(settings) as engine:
        (key,) = (key.id for key in list_keys(engine) if key.name == owner)
        job = import_scores(engine, open_artifacts(settings.artifact_root), content, "photos/train")
        with write_transaction(engine) as connection:
            connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(owner=key))
            connection.execute(INSERT, {"marks": MARKS, "job": job.id})
    return str(job.id)


@pytest.mark.slow
def test_many_marks_are_shown_and_sent_without_filling_the_server(
    start_service: Callable[..., Any], sqlite_url: str, tmp_path: Path
) -> None:
    service = start_service(sqlite_url)
    mine, theirs = service.new_key("mine"), service.new_key("theirs")
    job = add_job_with_marks(service, scores_of_many_samples(tmp_path / "scores.parquet"), "mine")

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
