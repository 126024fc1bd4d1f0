"""Jobs whose weights are downloaded first, and what their owners see of that."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save

from api.jobs.queue import Progress, claim, heartbeat
from api.jobs.store import Job, events_after, get_job
from api.worker.job_messages import Stage
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from difficulty_service.backbones.downloads import DownloadProgress
from difficulty_service.base.errors import WeightsTooLarge
from tests.api.worker.bench import Bench
from tests.hub import Hub, serving, use_hub
from tests.service import ServiceClient, client_of

BACKBONE = "timm:test_resnet.r160_in1k"
MEGABYTE = 10**6


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a small network of random weights."""
    torch.manual_seed(0)
    weights = save(timm.create_model("test_resnet").state_dict())
    with serving(Hub({"timm/test_resnet.r160_in1k/model.safetensors": weights})) as hub:
        hub.gate.set()
        use_hub(hub, tmp_path / "hub", monkeypatch)
        yield hub


def test_a_job_tells_of_the_download_of_its_weights_and_goes_on_after_it(
    bench: Bench, hub: Hub
) -> None:
    told: list[Progress | Stage] = []
    job = bench.claim(backbone=BACKBONE)

    run_job(job, bench.settings, bench.engine, bench.artifacts, Observer(told.append, told.append))

    (content,) = hub.files.values()
    downloads = [each.download for each in told if isinstance(each, Progress) and each.download]
    assert downloads[-1] == DownloadProgress(len(content), len(content))
    begun = told.index(Stage.DOWNLOADING)
    assert told[begun - 1 : begun + 2 : 2] == [Stage.EXTRACTING, Progress(download=downloads[0])]
    assert told[told.index(Progress(download=downloads[-1])) + 1] == Stage.EXTRACTING
    assert told[-1] == Progress(40, 40)


def test_a_job_with_weights_above_the_limit_fails_and_names_the_setting(
    bench: Bench, hub: Hub
) -> None:
    limited = bench.with_settings(max_download_bytes=1024)

    with pytest.raises(WeightsTooLarge) as refused:
        limited.run(limited.claim(backbone=BACKBONE))

    assert refused.value.remedy[-1].parameter == "max_download_bytes"
    assert hub.downloads == []


def test_the_owner_of_a_job_sees_its_download_as_long_as_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "photos" / "train").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}
    with client_of(tmp_path / "data", roots=roots) as client:
        job = claimed_job(client)
        engine = client.engine
        address = f"/v1/jobs/{job.id}"
        downloading = Progress(download=DownloadProgress(120 * MEGABYTE, 400 * MEGABYTE))

        heartbeat(engine, job, 60.0, downloading)
        shown = client.get(address).json()["progress"]["download"]
        listed = client.get("/v1/jobs").json()["jobs"][0]["progress"]["download"]
        page, jobs = client.get(f"/jobs/{job.id}").text, client.get("/").text
        heartbeat(engine, job, 60.0, Progress(0, 40))
        later = client.get(address).json()["progress"]["download"]

    assert shown == listed == {"done": 120 * MEGABYTE, "total": 400 * MEGABYTE}
    assert "Downloading weights, 120 of 400 MB" in page
    assert "downloading weights, 120 of 400 MB" in jobs
    assert later is None


def claimed_job(client: ServiceClient) -> Job:
    body = {"dataset": {"root": "photos", "path": "train"}, "backbone": "builtin"}
    client.post("/v1/jobs", json=body).raise_for_status()
    job = claim(client.engine, "worker", "cpu", 60.0)
    assert job is not None
    return job


def test_the_events_of_a_job_have_its_download(bench: Bench) -> None:
    job = bench.claim()

    heartbeat(bench.engine, job, 60.0, Progress(download=DownloadProgress(1, None)))

    assert events_after(bench.engine, job.id, 0, 10)[-1].data["download"] == {
        "done": 1,
        "total": None,
    }
    assert get_job(bench.engine, None, job.id) is not None
