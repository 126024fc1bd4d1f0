"""A dataset on its way through the service: uploaded, scored, followed, read, deleted."""

import hashlib
import io
import json
import socket
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.api.live.running import Service, StartService
from tests.small_network import SLOW, SMALL

CLASSES, EACH = 3, 8  # readable images, beside one that is not

JOB = {"backbone": SMALL, "scorers": ["rmd"], "shrinkage": "ledoit-wolf"}


@pytest.mark.slow
def test_an_upload_is_scored_watched_read_and_deleted(
    database_url: str, start_service: StartService, photos: Path
) -> None:
    service = start_service(database_url)
    archive = tar_of(photos / "train")
    half = len(archive) // 2

    with service.client() as client:
        upload = created(client.post("/v1/uploads", json={"format": "tar", "size": len(archive)}))
        client.put(upload, content=archive[:half]).raise_for_status()
        rest = client.put(upload, content=archive[half:], params={"offset": half})
        rest.raise_for_status()
        upload_id = upload.rpartition("/")[2]

        submitted = client.post("/v1/jobs", json={"dataset": {"upload": upload_id}, **JOB})
        job = submitted.headers["Location"]
        events = list(watch(client, f"{job}/events"))
        done = client.get(job).json()

        assert submitted.status_code == 202
        assert [event["state"] for event in events if "state" in event][-1] == "succeeded"
        assert done["state"] == "succeeded"
        assert done["progress"]["done"] == done["progress"]["total"] == CLASSES * EACH + 1
        assert done["progress"]["bad"] == 1

        table = pq.read_table(pa.BufferReader(client.get(f"{job}/scores.parquet").content))
        part = client.get(f"{job}/scores.parquet", headers={"Range": "bytes=0-3"})
        hardest = client.get(f"{job}/scores", params={"sort": "-rmd", "limit": 5}).json()
        errors = client.get(f"{job}/errors").json()
        thumbnail = client.get(hardest["samples"][0]["thumbnail"], params={"size": 32})

        scores = dict(zip(table["sample_id"].to_pylist(), table["rmd"].to_pylist(), strict=True))
        assert len(scores) == CLASSES * EACH
        assert (part.status_code, part.content) == (206, b"PAR1")
        assert [each["sample_id"] for each in hardest["samples"]] == sorted(
            scores, key=lambda sample_id: -scores[sample_id]
        )[:5]
        assert ["damaged" in each["sample_id"] for each in errors["errors"]] == [True]
        assert Image.open(io.BytesIO(thumbnail.content)).size == (32, 24)

        assert client.delete(job).status_code == 204
        assert client.get(job).status_code == 404
        assert client.get(f"{job}/scores.parquet").status_code == 404
        assert client.delete(upload).status_code == 204


@pytest.mark.long
def test_a_job_that_runs_is_cancelled_within_seconds(
    database_url: str, start_service: StartService, many_photos: Path
) -> None:
    service = start_service(database_url, heartbeat=0.2)

    with service.client() as client:
        dataset = {"root": "photos", "path": many_photos.name}
        wanted = {**JOB, "backbone": SLOW}
        submitted = client.post("/v1/jobs", json={"dataset": dataset, **wanted})
        job = submitted.headers["Location"]
        events = watch(client, f"{job}/events")
        state = next(event for event in events if event.get("done"))
        cancelled = client.delete(job)
        last = list(events)[-1]

    assert state["done"] < 3000
    assert cancelled.status_code == 202
    assert last["state"] == "cancelled"


def created(response: httpx2.Response) -> str:
    assert response.status_code == 201, response.text
    return response.headers["Location"]


def watch(client: httpx2.Client, url: str) -> Iterator[dict[str, Any]]:
    """The data of the events of a stream, until it ends."""
    with client.stream("GET", url) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


def tar_of(folder: Path) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.add(folder, arcname="train")
    return target.getvalue()


@pytest.mark.slow
def test_an_upload_resumes_after_a_broken_connection(shared_service: Service, photos: Path) -> None:
    archive = tar_of(photos / "train")
    half = len(archive) // 2
    parts = urlsplit(shared_service.url)

    with shared_service.client() as client:
        upload = created(client.post("/v1/uploads", json={"format": "tar", "size": len(archive)}))
        with socket.create_connection((str(parts.hostname), parts.port)) as connection:
            head = f"PUT {upload} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(archive)}\r\n\r\n"
            connection.sendall(head.encode() + archive[:half])
            time.sleep(0.5)  # what the server has not read when the connection ends may be lost
        received, done = go_on(client, upload, archive)

    assert received <= half
    assert done.json()["state"] == "complete"
    assert done.json()["sha256"] == hashlib.sha256(archive).hexdigest()


def go_on(client: httpx2.Client, upload: str, content: bytes) -> tuple[int, httpx2.Response]:
    """Sends the rest of an upload as soon as the server has noticed that the connection ended."""
    while True:
        received = client.get(upload).json()["received"]
        done = client.put(upload, content=content[received:], params={"offset": received})
        if done.status_code != httpx2.codes.CONFLICT:
            return received, done
        time.sleep(0.05)
