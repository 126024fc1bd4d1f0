"""Changed requests, uploads and files by the thousand: the service neither fails nor grows.

DIFFICULTY_FUZZ is their number; `make fuzz` sends 500,000. A finding names its number, by which the
same is sent again: `python tests/api/live/fuzzing URL KEY JOB FOLDER NUMBER NUMBER+1`.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("fuzzing")
NUMBER = int(os.environ.get("DIFFICULTY_FUZZ", "3000"))
PROCESSES = 3
ROOM = 300 << 20  # bytes that the service may grow by
SETTINGS = {
    "feature_cache_mb": 0,
    "header_timeout": 1,
    "body_timeout": 2,
    "image_seconds": 5,
    "max_queued_jobs": 20,
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
def fuzzed(
    start_service: Callable[..., Any], sqlite_url: str, tables: Path, photos: Path
) -> tuple[Any, str, str]:
    """A service with a job that has finished, its key and its id."""
    roots = json.dumps({"photos": str(photos), "tables": str(tables)})
    service = start_service(sqlite_url, roots=roots, **SETTINGS)
    key = service.new_key("fuzz")
    with service.client(key) as client:
        body = {"dataset": {"root": "photos", "path": "train"}, "backbone": "builtin"}
        job = client.post("/v1/jobs", json=body).raise_for_status().json()
        client.get(job["links"]["events"])  # until it has ended
        client.get(f"/jobs/{job['id']}/images/1/picture").raise_for_status()
        image = next((photos / "train").glob("*/1.png")).read_bytes()
        files = [("images", ("image.png", image))]
        client.post(f"/v1/gaussians/{job['id']}/score", files=files).raise_for_status()
    return service, key, job["id"]


@pytest.mark.slow
@pytest.mark.timeout(5 * 3600)
def test_no_changed_request_or_file_makes_the_service_fail_grow_or_keep_files(
    fuzzed: tuple[Any, str, str], tables: Path, tmp_path: Path
) -> None:
    service, key, job = fuzzed
    idle = memory_of(service)

    findings, statuses = run_fuzzers(service.url, key, job, str(tables))

    assert findings == []
    assert set(statuses) >= {"200", "201", "202", "204", "400", "404", "409", "413", "422"}
    assert memory_of(service) - idle < ROOM
    delete_everything(service, key)
    assert files_left(tmp_path / "data") == []
    logs = "".join((tmp_path / name).read_text() for name in ("server.log", "worker.log"))
    assert re.findall(r"Traceback.{,2000}|request-failed", logs) == []


def run_fuzzers(*arguments: str) -> tuple[list[str], Counter[str]]:
    """What the programs found, and the number of answers of each status."""
    bounds = [str(NUMBER * part // PROCESSES) for part in range(PROCESSES + 1)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        ended = list(pool.map(partial(run_fuzzer, *arguments), bounds, bounds[1:]))
    findings: list[str] = []
    statuses: Counter[str] = Counter()
    for program in ended:
        assert program.returncode == 0, program.stdout[-3000:] + program.stderr
        *lines, counts = program.stdout.splitlines()
        findings += lines
        statuses.update(json.loads(counts))
    return findings, statuses


def run_fuzzer(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One program, after its end."""
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours


def delete_everything(service: Any, key: str) -> None:  # noqa: ANN401
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
    return [str(path) for path in folder.rglob("*") if path.is_file()]


def memory_of(service: Any) -> int:  # noqa: ANN401
    """Resident memory of the server, the worker and all their processes, in bytes."""
    children = children_by_parent()
    waiting, total = list(service.processes), 0
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        status = Path(f"/proc/{process}/status").read_text()
        total += sum(map(int, re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE))) << 10
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
