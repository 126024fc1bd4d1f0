"""The Dockerfile's installation and commands, run here without a container engine."""

import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch

from tests.ports import unused_port

ROOT = Path(__file__).resolve().parents[2]
STARTED_WITHIN = 120.0


def of(instructions: list[Any], name: str, *stages: str) -> list[str]:
    return [
        each.text
        for each in instructions
        if each.name == name and (not stages or each.stage in stages)
    ]


def sources(instructions: list[Any]) -> list[str]:
    """Files and folders that are copied from this project."""
    copies = [text.split()[:-1] for text in of(instructions, "COPY") if "--from=" not in text]
    return sorted({path.rstrip("/") for paths in copies for path in paths})


def test_everything_copied_exists_and_is_let_through(instructions: list[Any]) -> None:
    allowed = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]

    assert [path for path in sources(instructions) if not (ROOT / path).exists()] == []
    assert sorted(allowed) == sources(instructions)


def test_it_runs_as_a_user_without_rights(instructions: list[Any]) -> None:
    for stage in ("cpu", "cuda"):
        last = of(instructions, "USER", stage)[-1]
        assert int(last.split(":")[0]) > 0


def test_the_cuda_image_refuses_old_drivers_and_can_compile(instructions: list[Any]) -> None:
    # Of a wheel for CPUs there is none to compare with.
    built_with = torch.version.cuda or "13.0"

    (settings,) = [text for text in of(instructions, "ENV", "cuda") if "REQUIRE" in text]
    assert "NVIDIA_REQUIRE_CUDA=cuda>=13.0" in settings
    assert built_with.partition(".")[0] == "13"
    # What is left of a step on the CPU is compiled as C++, the launches of kernels as C.
    assert any(" g++ gcc " in text for text in of(instructions, "RUN", "cuda"))


def test_every_extra_that_is_installed_exists(instructions: list[Any]) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    installs = [text for text in of(instructions, "RUN") if "'.[" in text]

    assert len(installs) == 2
    for text in installs:
        extras = text.partition("'.[")[2].partition("]")[0].split(",")
        # What the services of compose.yaml and compose.gpu.yaml run.
        assert {"postgresql", "serve", "train"} < set(extras)
        assert all(f"\n{extra} = [" in project for extra in extras)


@pytest.fixture(scope="module")
def installed(instructions: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the project installed as the Dockerfile does it.

    Only what the project needs is taken from the environment of the tests, six gigabytes of it.
    """
    folder = tmp_path_factory.mktemp("image")
    source, environment = folder / "source", folder / "environment"
    copy_context(sources(instructions), source)
    venv.create(environment, with_pip=False)
    site = Path(
        sysconfig.get_path("purelib", "venv", {"base": environment, "platbase": environment})
    )
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    wheel = next(text for text in of(instructions, "RUN", "project") if "pip wheel" in text)
    assert "pip wheel --no-deps --wheel-dir /wheels ." in wheel
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    subprocess.run(  # noqa: S603 - our own files
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels", "."],
        cwd=source,
        check=True,
    )
    wheels = sorted((folder / "wheels").iterdir())
    subprocess.run(  # noqa: S603 - our own files
        [
            *pip,
            "install",
            "--no-cache-dir",
            "--no-deps",
            "--no-index",
            "--force-reinstall",
            *wheels,
        ],
        check=True,
    )
    return environment / "bin"


def copy_context(paths: list[str], target: Path) -> None:
    """Copies the files that .dockerignore does not exclude."""

    def ignored(_folder: str, names: list[str]) -> list[str]:
        return fnmatch.filter(names, "__pycache__") + fnmatch.filter(names, "*.py[co]")

    target.mkdir()
    for path in paths:
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, target / path, ignore=ignored)
        else:
            shutil.copy(ROOT / path, target / path)


@pytest.fixture
def environment(instructions: list[Any], tmp_path: Path) -> dict[str, str]:
    """Variables of the image, with folders and a port for the test."""
    variables = dict(
        pair.split("=", 1)
        for text in of(instructions, "ENV", "runtime")
        for pair in text.split(" ")
    )
    return {
        **{name: value.replace("/data", str(tmp_path)) for name, value in variables.items()},
        "HOME": str(tmp_path),
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
        "PATH": os.environ["PATH"],
        "OMP_NUM_THREADS": "1",
        "DIFFICULTY_PORT": str(unused_port()),
        "DIFFICULTY_DEVICE": "cpu",
    }


@pytest.fixture
def command(instructions: list[Any], installed: Path) -> Callable[..., list[str]]:
    """Runs the command of the image with other arguments."""
    (entry,) = of(instructions, "ENTRYPOINT")
    (usual,) = of(instructions, "CMD", "runtime")

    def build(*arguments: str) -> list[str]:
        program, *rest = json.loads(entry)
        return [str(installed / program), *rest, *(arguments or json.loads(usual))]

    return build


@pytest.mark.long
def test_the_image_serves_once_there_is_a_key_and_ends_in_order(
    instructions: list[Any],
    command: Callable[..., list[str]],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 - our own command
            command(*arguments),
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    early = run()
    made = run("keys", "create", "me")
    url = f"http://127.0.0.1:{environment['DIFFICULTY_PORT']}"
    server = subprocess.Popen(command(), env=environment, cwd=tmp_path)  # noqa: S603
    try:
        wait_for(url, server)
        (health,) = of(instructions, "HEALTHCHECK")
        check = json.loads(health.partition("CMD ")[2])
        healthy = subprocess.run([sys.executable, *check[1:]], env=environment, check=False)  # noqa: S603
        asked = httpx2.get(f"{url}/v1/jobs", headers={"X-API-Key": made.stdout.strip()})
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(60)

    assert early.returncode == 1
    assert "keys create" in early.stderr
    assert healthy.returncode == 0
    assert asked.json() == {"jobs": [], "next": None}
    assert status == 0


@pytest.mark.long
def test_the_image_scores_and_has_all_commands_and_files(
    command: Callable[..., list[str]], environment: dict[str, str], tmp_path: Path
) -> None:
    for arguments in (["demo", "--out", "demo"], ["train", "--help"], ["worker", "--help"]):
        subprocess.run(  # noqa: S603 - our own command
            command(*arguments), env=environment, cwd=tmp_path, check=True, capture_output=True
        )

    assert (tmp_path / "demo" / "scores.parquet").exists()


def wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + STARTED_WITHIN
    while time.monotonic() < end and server.poll() is None:
        try:
            httpx2.get(f"{url}/healthz").raise_for_status()
        except httpx2.TransportError:
            time.sleep(0.2)
        else:
            return
    pytest.fail("the server did not start")
