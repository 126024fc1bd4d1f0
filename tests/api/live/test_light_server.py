"""The web server does without torch, whatever it is asked for."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from difficulty_service.backbones import BACKBONES
from tests.fork_server import fork_server_addresses

COMMAND = """
import sys
from difficulty_service.cli import main
from tests.fork_server import fork_children

# Workers and other children load torch, which takes seconds in an interpreter of their own.
fork_children([sys.argv.pop(1), sys.argv.pop(1)])
sys.exit(main())
"""
ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ("libtorch", "torchvision", "faiss")
PAGES = ("", "/images", "/images/0", "/classes", "/pairs", "/map", "/map/points", "/errors")
DIM = BACKBONES["builtin"].facts.feature_dim


def libraries_of(process: int) -> list[str]:
    """Heavy libraries that a process has mapped."""
    mapped = Path(f"/proc/{process}/maps").read_text()
    return [name for name in LIBRARIES if name in mapped]


@contextmanager
def running(*words: object, log: Path, **settings: object) -> Iterator[tuple[str, int]]:
    """A command that serves, in an interpreter of its own; its log so far and its pid."""
    variables = {f"DIFFICULTY_{name.upper()}": str(value) for name, value in settings.items()}
    with log.open("w") as file:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-c", COMMAND, *fork_server_addresses(), *map(str, words)],
            cwd=ROOT,
            env=os.environ | variables,
            stdout=file,
            stderr=file,
        )
    try:
        while not any(word in log.read_text() for word in ('"listening"', "Ctrl-C")):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield log.read_text(), process.pid
    finally:
        process.terminate()
        process.wait(60)


def client_of(address: str) -> httpx2.Client:
    return httpx2.Client(base_url=address, timeout=120, transport=httpx2.HTTPTransport(retries=50))


def scored_job(client: httpx2.Client) -> Mapping[str, str]:
    """The links of a job that has succeeded."""
    body = {"dataset": {"root": "photos", "path": "train"}, "backbone": "builtin"}
    job = client.post("/v1/jobs", json=body | {"shrinkage": 0.5}).raise_for_status().json()
    client.get(job["links"]["events"])  # until it has ended
    assert client.get(job["links"]["self"]).json()["state"] == "succeeded"
    links: Mapping[str, str] = job["links"]
    return links


@pytest.mark.long
def test_pages_thumbnails_and_single_samples_load_no_torch_into_the_server(
    tmp_path: Path, photos: Path
) -> None:
    settings = {
        "data_dir": tmp_path / "data",
        "roots": json.dumps({"photos": str(photos)}),
        "default_backbone": "builtin",
    }
    command = ("serve", "--port", 0, "--with-worker")
    with running(*command, log=tmp_path / "log", **settings, poll=0.05) as (log, server):
        events = [json.loads(line) for line in log.splitlines()]
        url = next(event["url"] for event in events if event["event"] == "listening")
        with client_of(url) as client:
            job = scored_job(client)["self"].rpartition("/")[2]
            vectors = client.post(f"/v1/gaussians/{job}/score", json={"features": [[0.5] * DIM]})
            image = (photos / "train" / "cat" / "0.png").read_bytes()
            images = client.post(f"/v1/gaussians/{job}/score", files=[("images", image)])
            answers = [client.get(f"/jobs/{job}{page}") for page in PAGES]
            answers += [
                client.get(path)
                for path in ("/", "/v1/backbones", f"/v1/jobs/{job}/thumbnails/cat%2F0.png")
            ]
            scores = client.get(f"/v1/jobs/{job}/scores.parquet").content

        assert libraries_of(server) == []
    (tmp_path / "scores.parquet").write_bytes(scores)
    assert [answer.status_code for answer in (vectors, images, *answers)] == [200] * 13
    assert vectors.json()["samples"][0]["rmd"] is not None
    assert images.json()["samples"][0]["rmd"] is not None

    explore = ("explore", tmp_path / "scores.parquet", "--images", photos / "train")
    with running(*explore, "--no-browser", log=tmp_path / "output") as (output, server):
        address = output.split("Open ")[1].split()[0]
        with client_of(address) as client:
            assert client.get("/images/0").status_code == 200

        assert libraries_of(server) == []


@pytest.mark.slow
def test_importing_the_server_imports_no_heavy_library() -> None:
    code = (
        "import sys, api.app, api.server, api.explore; "
        "print(*{'torch', 'torchvision', 'faiss', 'open_clip', 'timm', 'scipy'} & set(sys.modules))"
    )

    finished = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )

    assert finished.stdout.split() == []
