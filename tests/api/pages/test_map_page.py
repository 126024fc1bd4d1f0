"""The t-SNE of a job's images, made once somebody looks at the map."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from api.jobs.store import Job, get_job
from api.pages import map_page
from api.results import tsne_maps
from tests.factories import unpack_map, write_image_folder
from tests.service import ServiceClient, client_of, finished_job
from tests.small_network import SMALL

CLASSES = ("bird", "cat", "dog")
EVERYTHING = "-9_-9_70000_-9_70000_70000_-9_70000"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    """A service with noise of a brightness per class."""
    folder = tmp_path_factory.mktemp("service")
    photos = write_image_folder(folder / "photos", CLASSES, 10, size=(16, 16))
    roots = {"photos": str(photos)}
    with client_of(folder / "data", roots=roots, default_backbone=SMALL) as client:
        yield client


@pytest.fixture
def job(client: ServiceClient) -> Job:
    """A job whose map nobody has looked at."""
    return finished_job(client)


def ask(client: ServiceClient, job: Job) -> tuple[list[float], object, bytes]:
    """The shares until the map is made, why it is not, and its points."""
    shares = []
    while True:
        answer = client.get(f"/jobs/{job.id}/map/tsne").raise_for_status()
        if answer.status_code != 202:
            return shares, None, answer.content
        progress = answer.json()
        if progress["failure"] is not None:
            return shares, progress["failure"], b""
        shares.append(progress["share"])
        time.sleep(0.1)


@pytest.mark.slow
def test_a_tsne_is_made_when_it_is_asked_for_and_kept(client: ServiceClient, job: Job) -> None:
    pytest.importorskip("openTSNE", reason="the extra `map` is not installed")
    artifacts = client.services.artifacts
    key = f"jobs/{job.id}/a1/tsne/map.parquet"
    before, page = artifacts.size(key), client.get(f"/jobs/{job.id}/map").text

    shares, failure, content = ask(client, job)

    assert before is None
    assert 'data-tsne="possible"' in page
    assert failure is None
    assert shares == sorted(shares)
    assert shares[0] == 0
    points = unpack_map(content)
    assert points["rows"].tolist() == list(range(30))
    assert artifacts.size(key)
    assert 'data-tsne="ready"' in client.get(f"/jobs/{job.id}/map").text
    assert ask(client, job) == ([], None, content)


@pytest.mark.slow
def test_a_tsne_of_a_job_that_was_deleted_meanwhile_is_not_kept(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openTSNE", reason="the extra `map` is not installed")
    artifacts = client.services.artifacts
    write = tsne_maps.write_parquet

    def write_late(path: Path, points: pa.Table) -> None:
        client.delete(f"/v1/jobs/{job.id}").raise_for_status()
        write(path, points)

    monkeypatch.setattr(tsne_maps, "write_parquet", write_late)

    services = client.services
    finished = get_job(services.engine, None, job.id)

    why_not = services.tsne_maps._write(finished)

    assert why_not == "the job was deleted"
    assert artifacts.size(f"jobs/{job.id}/a1/tsne/map.parquet") is None


@pytest.mark.slow
def test_an_area_of_the_tsne_selects_other_images_than_one_of_the_plane(
    client: ServiceClient, job: Job
) -> None:
    pytest.importorskip("openTSNE", reason="the extra `map` is not installed")
    address = f"/jobs/{job.id}/images"
    early = client.get(f"{address}?area=tsne~{EVERYTHING}").text
    positions = unpack_map(ask(client, job)[2])["positions"].reshape(-1, 2)
    left = f"-9_-9_{int(np.median(positions[:, 0]))}_-9_{int(np.median(positions[:, 0]))}_70000"
    left += "_-9_70000"

    page = client.get(f"{address}?area=tsne~{left}&sort=file").raise_for_status().text

    assert "this job has no map" in early
    rows = list(map(int, dict.fromkeys(re.findall(r'data-row="(\d+)"', page))))
    expected = np.flatnonzero(positions[:, 0] < int(np.median(positions[:, 0])))
    assert rows == expected.tolist()


def test_a_process_that_dies_is_told_and_not_started_again(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_page, "has_tsne", lambda: True)
    monkeypatch.setattr(tsne_maps, "serve", os.kill)  # which refuses these arguments

    _, failure, _ = ask(client, job)
    again = ask(client, job)

    assert failure == "its process was ended with exit code 1"
    assert again == ([], failure, b"")


def test_without_the_package_the_page_names_the_extra(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_page, "has_tsne", lambda: False)

    page = client.get(f"/jobs/{job.id}/map").text

    assert "pip install &#39;difficulty-service[map]&#39;" in page
    assert 'data-tsne=""' in page
    assert client.get(f"/jobs/{job.id}/map/tsne").status_code == 404


def test_the_id_of_a_point_is_asked_for(client: ServiceClient, job: Job) -> None:
    assert client.get(f"/jobs/{job.id}/map/ids/12").json() == "cat/2.png"
    assert client.get(f"/jobs/{job.id}/map/ids/30").status_code == 404
