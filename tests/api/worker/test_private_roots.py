"""A root may have credentials in its address; nothing of the address reaches a client or a log."""

import io
from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from sqlalchemy import Engine, text
from starlette.testclient import TestClient

from api.app import create_app
from api.http.problems import Problem
from api.jobs.folders import look_into
from api.logs import printable_settings, set_up_logging
from api.settings import Settings
from tests.api.worker.bench import Bench
from tests.service import logging_restored

KEY, SECRET, BUCKET = "AKIAQ2WESRXT", "h3dgehog/s3cr3t", "tenants-pictures"
CREDENTIALS = (KEY, "h3dgehog", "s3cr3t")


@pytest.fixture
def settings(settings: Settings, photos: Path) -> Iterator[Settings]:
    """Settings with a root in a storage that its address has the credentials of."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = "{}:{}".format(*server.get_host_and_port())
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{endpoint}",
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket=BUCKET)
    for image in photos.rglob("*.png"):
        client.upload_file(str(image), BUCKET, f"all/photos/{image.relative_to(photos)}")
    folder = f"all/photos/{next(photos.iterdir()).name}"
    client.put_object(Bucket=BUCKET, Key=f"{folder}/broken.png", Body=b"no image")
    client.put_object(Bucket=BUCKET, Key="all/table.parquet", Body=b"PAR1 no table PAR1")
    quoted = SECRET.replace("/", "%2F")
    query = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
    root = f"s3://{KEY}:{quoted}@{BUCKET}/all?{query}"
    yield settings.model_copy(update={"roots": {"pictures": root}})
    server.stop()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with logging_restored():
        set_up_logging(Settings(), stream)
        yield stream


def everything_in(engine: Engine) -> str:
    with engine.connect() as connection:
        tables = ("jobs", "job_events", "workers")
        rows = [connection.execute(text(f"SELECT * FROM {table}")).all() for table in tables]  # noqa: S608
    return str(rows)


@pytest.mark.slow
def test_no_result_event_answer_or_log_names_its_address(bench: Bench, log: io.StringIO) -> None:
    scored = bench.submit()
    missing = bench.submit(dataset={"root": "pictures", "path": "nowhere"})
    damaged = bench.submit(dataset={"root": "pictures", "path": "table.parquet"})
    strict = bench.submit(on_error="stop")

    with bench.working():
        bench.wait_for(scored, "succeeded")
        for job in (missing, damaged, strict):
            bench.wait_for(job, "failed")
    seen = [everything_in(bench.engine)]
    with TestClient(create_app(bench.settings), base_url="http://localhost") as client:
        for job in (scored, missing, damaged, strict):
            addresses = [f"/v1/jobs/{job.id}{page}" for page in ("", "/errors", "/events")]
            seen += [client.get(address).text for address in addresses]
            page = client.get(f"/jobs/{job.id}", headers={"Accept": "text/html"})
            assert page.status_code == 200
            seen.append(page.text)
        assert "broken.png" in client.get(f"/v1/jobs/{scored.id}/errors").text
        seen.append(client.get("/v1/backbones").text + client.get("/").text)
    files = list(Path(bench.settings.artifact_root).rglob("*.parquet"))
    assert files
    seen += [str(pq.read_metadata(file).metadata) + str(pq.read_table(file)) for file in files]
    assert "pictures/nowhere" in seen[0]
    assert not [word for word in (*CREDENTIALS, BUCKET) for each in seen if word in each]
    # The operator may see the address, but not the credentials.
    logged = log.getvalue() + str(printable_settings(bench.settings))
    assert BUCKET in logged
    assert not [word for word in CREDENTIALS if word in logged]


def test_a_folder_in_a_storage_is_listed_without_its_address(bench: Bench) -> None:
    top, photos = (look_into(bench.settings, "pictures", path, 0) for path in ("", "photos"))

    assert [(each.path, each.kind) for each in top.entries] == [
        ("photos", "folder"),
        ("table.parquet", "table"),
    ]
    assert photos.hint.endswith("folders")
    assert {each.path for each in photos.entries} == {f"photos/{e.name}" for e in photos.entries}
    assert not any(secret in top.model_dump_json() for secret in (*CREDENTIALS, BUCKET))
    with pytest.raises(Problem, match="no folder 'nowhere'") as caught:
        look_into(bench.settings, "pictures", "nowhere", 0)
    assert BUCKET not in caught.value.detail
