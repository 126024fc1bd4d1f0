"""docker/compose.yaml, run as docs/api.md and docs/operating.md say; `make compose-test` does it.

PYTHON_IMAGE is a local image with Python, for machines that reach no registry. Where it sets
PIP_NO_DEPS=1 and PYTHONPATH=/packages, the image gets the project alone, and the packages are those
of the folder DIFFICULTY_COMPOSE_PACKAGES, such as .venv/lib/python3.11/site-packages: seconds in
place of gigabytes. The tests follow upon one another: each goes on with the services as the one
before left them.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image

from tests.docker.running import (
    NAME,
    PATIENCE,
    ROOT,
    Project,
    build,
    build_local_images,
    wait_for,
    why_not,
)
from tests.ports import unused_port

pytestmark = [
    pytest.mark.skipif(
        "DIFFICULTY_COMPOSE" not in os.environ, reason="`make compose-test` runs the containers"
    ),
    pytest.mark.timeout(3600),
]

SERVICES = ("proxy", "api", "worker", "worker-2", "database")
FEW, MANY = 60, 600  # samples that are scored at once, and long enough to be interrupted
BEFORE = os.environ.get("DIFFICULTY_COMPOSE_BEFORE", "HEAD~1")
KILL = (
    "import os, signal; "
    "os.kill(int(open('/proc/1/task/1/children').read().split()[0]), signal.SIGKILL)"
)
"""Ends the program that the init process of a container runs."""


def make_dataset(folder: Path, per_class: int) -> None:
    """Noisy images of two classes."""
    random = np.random.default_rng(0)
    for name, mean in (("dark", 60), ("light", 190)):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = random.normal(mean, 40, (32, 32, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:05d}.png")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("compose")
    datasets = folder / "datasets"
    make_dataset(datasets / "few", FEW // 2)
    make_dataset(datasets / "many", MANY // 2)
    folder.chmod(0o755)
    before = folder / "before"
    subprocess.run(  # noqa: S603
        ["git", "-C", ROOT, "archive", f"--output={folder / 'before.tar'}", BEFORE],  # noqa: S607
        check=True,
    )
    before.mkdir()
    subprocess.run(["tar", "-C", before, "-xf", folder / "before.tar"], check=True)  # noqa: S603, S607
    build_local_images()
    build(ROOT, f"{NAME}:now")
    build(before, f"{NAME}:before")
    project = Project(folder, datasets, unused_port())
    project.write(f"{NAME}:before")
    try:
        yield project
    finally:
        logs = project.compose("logs", "--tail=40", "--no-color")
        sys.stderr.write(logs.decode(errors="replace"))
        project.compose("down", "--volumes", "--timeout=5")


@pytest.fixture(scope="module")
def client(project: Project) -> Iterator[httpx2.Client]:
    """Asks the published port with a key that was made as the page says."""
    made = project.compose("run", "--rm", "-T", "api", "keys", "create", "me", "--scopes", "write")
    project.up()
    with httpx2.Client(
        base_url=f"http://127.0.0.1:{project.port}",
        headers={"X-API-Key": made.decode().split()[-1]},
        timeout=60,
    ) as client:
        yield client


def submit(client: httpx2.Client, path: str) -> str:
    dataset = {"root": "datasets", "path": path}
    answer = client.post("/v1/jobs", json={"dataset": dataset, "backbone": "builtin"})
    assert answer.status_code in {201, 202}, answer.text
    return str(answer.json()["id"])


def test_a_dataset_is_scored_through_the_published_port(client: httpx2.Client) -> None:
    job = wait_for(client, submit(client, "few"), "succeeded")

    scores = client.get(f"/v1/jobs/{job['id']}/scores").raise_for_status()
    page = client.get("/healthz")

    assert job["result"]["num_scored"] == FEW
    assert scores.content
    assert page.headers["server"] == "nginx"


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("service", SERVICES)
def test_every_running_container_has_its_limits(project: Project, service: str) -> None:
    look = (
        "grep -E '^(CapEff|NoNewPrivs)' /proc/1/status; touch /file 2>&1; id -u;"
        " cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null;"
        " cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null;"
        " true"
    )

    held = project.inspect(service)["HostConfig"]
    seen = project.compose("exec", "-T", service, "sh", "-c", look).decode()

    assert "CapEff:\t0000000000000000" in seen
    assert "NoNewPrivs:\t1" in seen
    assert "Read-only file system" in seen
    user, pids, memory = seen.splitlines()[-3:]
    assert int(user) > 0
    assert (int(pids), int(memory)) == (held["PidsLimit"], held["Memory"])
    assert held["PidsLimit"] > 0
    assert held["Memory"] > 0


@pytest.mark.usefixtures("client")
def test_the_proxy_reaches_the_server_by_the_trusted_network_alone(project: Project) -> None:
    found = project.compose("exec", "-T", "proxy", "getent", "ahostsv4", "api").decode()

    assert {line.split()[0].rpartition(".")[0] for line in found.splitlines()} == {"172.31.254"}


def test_the_job_of_a_worker_that_is_killed_is_finished_and_the_worker_comes_back(
    client: httpx2.Client, project: Project
) -> None:
    job = submit(client, "many")
    running = wait_for(client, job, "running")
    holder = holding(project)
    began = project.inspect(holder)["RestartCount"]

    project.compose("exec", "-T", holder, "python", "-c", KILL)
    done = wait_for(client, job, "succeeded")

    assert running["attempts"] == 1
    assert done["attempts"] == 2
    assert project.inspect(holder)["RestartCount"] == began + 1


def holding(project: Project) -> str:
    """The service whose worker runs a job."""
    asked = "SELECT worker FROM jobs WHERE state = 'running'"
    query = ("psql", "--username=difficulty", "--tuples-only", "--no-align", "--command", asked)
    worker = project.compose("exec", "-T", "database", *query, "difficulty").decode().strip()
    for service in ("worker", "worker-2"):
        if project.inspect(service)["Config"]["Hostname"] == worker.partition("-")[0]:
            return service
    raise AssertionError(f"{worker!r} is in no container")


def test_a_job_goes_on_while_the_database_starts_again(
    client: httpx2.Client, project: Project
) -> None:
    job = submit(client, "many")
    wait_for(client, job, "running")

    project.compose("restart", "database")
    done = wait_for(client, job, "succeeded")

    assert done["result"]["num_scored"] == MANY


def test_the_next_version_starts_on_what_the_one_before_left(
    client: httpx2.Client, project: Project
) -> None:
    before = client.get("/v1/jobs").json()
    scores = client.get(f"/v1/jobs/{before['jobs'][0]['id']}/scores").json()

    project.compose("stop", "worker", "worker-2", "api")
    project.write(f"{NAME}:now")
    project.up()

    assert project.inspect("api")["Config"]["Image"] == f"{NAME}:now"
    assert known(client.get("/v1/jobs").json(), before) == before
    after = client.get(f"/v1/jobs/{before['jobs'][0]['id']}/scores").json()
    assert known(after, scores) == scores
    wait_for(client, submit(client, "few"), "succeeded")


def known(after: Any, before: Any) -> Any:  # noqa: ANN401 - JSON
    """What an answer has of the fields of an older one: a new version may add others."""
    if isinstance(after, dict) and isinstance(before, dict):
        return {key: known(after[key], value) for key, value in before.items() if key in after}
    if isinstance(after, list) and isinstance(before, list) and len(after) == len(before):
        return [known(one, other) for one, other in zip(after, before, strict=True)]
    return after


def test_a_backup_brings_back_everything_on_an_empty_machine(
    client: httpx2.Client, project: Project, tmp_path: Path
) -> None:
    jobs = client.get("/v1/jobs").json()
    scores = client.get(f"/v1/jobs/{jobs['jobs'][0]['id']}/scores").json()

    project.back_up(tmp_path)
    project.compose("down", "--volumes")
    project.restore(tmp_path)

    assert client.get("/v1/jobs").json() == jobs
    assert client.get(f"/v1/jobs/{jobs['jobs'][0]['id']}/scores").json() == scores
    wait_for(client, submit(client, "few"), "succeeded")


def test_a_backup_takes_the_place_of_what_was_done_since(
    client: httpx2.Client, project: Project, tmp_path: Path
) -> None:
    jobs = client.get("/v1/jobs").json()
    project.back_up(tmp_path)
    later = wait_for(client, submit(client, "few"), "succeeded")["id"]

    project.restore(tmp_path)

    assert client.get("/v1/jobs").json() == jobs
    assert client.get(f"/v1/jobs/{later}").status_code == 404


def test_a_server_that_is_killed_comes_back_behind_the_proxy(
    client: httpx2.Client, project: Project
) -> None:
    project.compose("exec", "-T", "api", "python", "-c", KILL)

    end = time.monotonic() + PATIENCE
    while client.get("/healthz").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.5)
