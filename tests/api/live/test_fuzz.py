"""Changed requests, uploads and files by the thousand: the service neither fails nor grows.

DIFFICULTY_FUZZ is how many are sent, and DIFFICULTY_FUZZ_FROM the number of the first; `make fuzz`
sends 500,000 others. A finding names its number, by which the same is sent again: `python
tests/api/live/fuzzing URL KEY JOB FOLDER NUMBER NUMBER+1`.
"""

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.storage.identity import MARKER
from tests.api.live.running import Service, StartService

PROGRAM = Path(__file__).with_name("fuzzing")
NUMBER = int(os.environ.get("DIFFICULTY_FUZZ", "640"))
FIRST = int(os.environ.get("DIFFICULTY_FUZZ_FROM", "0"))
MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder in it is made with a name that is free
ROOM = 300 << 20  # bytes that the service may grow by
SETTINGS = {
    "poll": 0.1,
    "heartbeat": 1,
    "feature_cache_mb": 0,
    "header_timeout": 1,
    "body_timeout": 2,
    "image_seconds": 5,
    "max_queued_jobs": 20,
    "max_body_bytes": 1 << 18,
    "max_upload_bytes": 1 << 20,
    "retry_delay": 0,
    "rate_limit": "10000000/minute",
}


@pytest.fixture
def tables(tmp_path: Path, photos: Path) -> Path:
    """A root for lists of images, beside the images."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "train").symlink_to(photos / "train")
    return folder


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder for the database and files, in memory if possible: no power cut is tested here."""
    with TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def fuzzed(
    start_service: StartService, data: Path, tables: Path, photos: Path
) -> tuple[Any, str, str]:
    """A service with a job that has finished, its key and its id."""
    roots = json.dumps({"photos": str(photos), "tables": str(tables)})
    database = f"sqlite:///{data / 'difficulty.sqlite'}"
    # Not forked: the memory of all children is counted.
    service = start_service(database, forks=False, roots=roots, data_dir=data / "files", **SETTINGS)
    key = service.new_key("fuzz")
    with service.client(key) as client:
        body = {"dataset": {"root": "photos", "path": "train"}, "backbone": "builtin"}
        job = client.post("/v1/jobs", json=body).raise_for_status().json()
        client.get(job["links"]["events"])  # until it has ended
        client.get(f"/jobs/{job['id']}/images/1/picture").raise_for_status()
        client.post("/v1/estimates", json=body).raise_for_status()
        image = next((photos / "train").glob("*/1.png")).read_bytes()
        files = [("images", ("image.png", image))]
        client.post(f"/v1/gaussians/{job['id']}/score", files=files).raise_for_status()
        address = f"/v1/jobs/{job['id']}/columns/a.csv"
        assert client.put(address, content=b"path,x\nnone,1\n").status_code == 422
        # Both processes that check Parquet files, as all others, run when the service is idle.
        table = pa.BufferOutputStream()
        pq.write_table(pa.table({"image": [image]}), table)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(partial(upload, client), [table.getvalue().to_pybytes()] * 2))
    return service, key, job["id"]


def upload(client: httpx2.Client, content: bytes) -> None:
    """Sends a Parquet file and deletes it."""
    made = client.post("/v1/uploads", json={"format": "parquet", "size": len(content)}).json()
    client.put(made["links"]["self"], content=content).raise_for_status()
    client.delete(made["links"]["self"]).raise_for_status()


@pytest.mark.long
@pytest.mark.timeout(5 * 3600)
def test_no_changed_request_or_file_makes_the_service_fail_grow_or_keep_files(
    fuzzed: tuple[Any, str, str], tables: Path, data: Path, tmp_path: Path
) -> None:
    service, key, job = fuzzed
    idle = memory_of(service)

    findings, statuses = run_fuzzer(service.url, key, job, str(tables))

    assert findings == []
    assert set(statuses) >= {"200", "201", "202", "204", "400", "404", "409", "413", "422"}
    grown = memory_of(service) - idle
    logging.getLogger("fuzzing").info(f"memory grew by {grown >> 20} MB")
    delete_everything(service, key)
    assert files_left(data / "files") == []
    logs = "".join((tmp_path / name).read_text() for name in ("server.log", "worker.log"))
    assert re.findall(r"Traceback.{,2000}|request-failed", logs) == []
    assert grown < ROOM  # last, so that a long run tells the rest in any case


def run_fuzzer(*arguments: str) -> tuple[list[str], dict[str, int]]:
    """What the program found, and the number of answers of each status."""
    command = [sys.executable, str(PROGRAM), *arguments, str(FIRST), str(FIRST + NUMBER)]
    findings: list[str] = []
    statuses: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:  # noqa: S603 - ours
        assert program.stdout is not None
        for line in program.stdout:
            logging.getLogger("fuzzing").info(line.rstrip())
            if line.startswith("{"):
                statuses = json.loads(line)
            else:
                findings.append(line)
    assert program.returncode == 0, findings[-3:]
    return findings, statuses


def delete_everything(service: Service, key: str) -> None:
    """Deletes all jobs and uploads by the API, once the jobs have ended."""
    with service.client(key) as client:
        while jobs := client.get("/v1/jobs?limit=200").json()["jobs"]:
            for job in jobs:
                client.delete(f"/v1/jobs/{job['id']}")
            time.sleep(0.1)
        while uploads := client.get("/v1/uploads").json()["uploads"]:
            for upload in uploads:
                client.delete(f"/v1/uploads/{upload['id']}").raise_for_status()


def files_left(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if path.name != MARKER]


def memory_of(service: Service) -> int:
    """Memory of the server, the worker and all their processes, in bytes; shared pages once.

    Without pages of files: how many of a library's count depends on who else has loaded it.
    """
    children = children_by_parent()
    waiting, total = list(service.processes), 0
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        pages = Path(f"/proc/{process}/smaps_rollup").read_text()
        total += (
            sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", pages, re.MULTILINE)))
            << 10
        )
    return total


def children_by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        found.setdefault(parent, []).append(int(stat.parent.name))
    return found
