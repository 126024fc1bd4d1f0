"""A project of docker/compose.yaml that runs, and the commands of docs/operating.md for it."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.page_commands import commands_below

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker" / "compose.yaml"
IMAGES = Path(__file__).parent / "images"
NAME = "difficulty-compose-test"
PATIENCE = 600.0  # seconds until a job or a container must have got anywhere


def why_not() -> str | None:
    """Why containers cannot be run here; None where they can."""
    for command in (["docker", "compose", "version"], ["docker", "info"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        except FileNotFoundError:
            return "docker is not installed"
        if done.returncode:
            return f"`{' '.join(command)}` fails: {done.stderr.strip()[:200]}"
    return None


def docker(*arguments: str, feed: bytes | None = None) -> bytes:
    """What a command prints; its errors go to the terminal."""
    done = subprocess.run(  # noqa: S603 - our own command
        ["docker", *arguments],  # noqa: S607
        input=feed if feed is not None else b"",
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


@dataclass(frozen=True)
class Project:
    """The services of the compose file, under a name and with images of the tests' own."""

    folder: Path  # for its own files
    datasets: Path
    port: int

    def write(self, image: str) -> None:
        """Settles the image of the service, and names local ones where a base is given."""
        (self.folder / "env").write_text(
            f"POSTGRES_PASSWORD='it is \"secret\" & $5'\nDATASETS={self.datasets}\n"
            f"PORT={self.port}\nFRONT_SUBNET=172.31.254.0/28\n"
        )
        packages = os.environ.get("DIFFICULTY_COMPOSE_PACKAGES")
        mounted = {"volumes": [f"{packages}:/packages:ro"]} if packages else {}
        ours = {"image": image, **mounted}
        local = (
            {"database": {"image": f"{NAME}:database"}, "proxy": {"image": f"{NAME}:proxy"}}
            if "PYTHON_IMAGE" in os.environ
            else {}
        )
        services = {**dict.fromkeys(("api", "worker", "worker-2"), ours), **local}
        (self.folder / "images.json").write_text(json.dumps({"services": services}))

    def compose(self, *arguments: str) -> bytes:
        """A command of compose; gives what it prints."""
        return docker(*self._options(), *arguments)

    def _options(self) -> list[str]:
        files = [f"--file={FILE}", f"--file={self.folder / 'images.json'}"]
        chosen = [f"--env-file={self.folder / 'env'}", f"--project-name={NAME}"]
        return ["compose", *chosen, *files, "--profile=two-workers"]

    def up(self) -> None:
        """Starts everything, and waits until all of it is healthy."""
        self.compose("up", "--detach", "--wait", f"--wait-timeout={PATIENCE:g}")

    def inspect(self, service: str) -> Mapping[str, Any]:
        """What the engine knows of a service's container."""
        name = self.compose("ps", "--all", "--quiet", service).decode().strip()
        found: Mapping[str, Any] = json.loads(docker("inspect", name))[0]
        return found

    def back_up(self, folder: Path) -> None:
        """Makes a backup in a folder, by the commands of docs/operating.md."""
        (folder / "backup").mkdir(parents=True)
        self._run(commands_below("operating.md", "Backup")[1], folder)

    def restore(self, folder: Path) -> None:
        """Puts a backup in the place of what is there, by the commands of docs/operating.md."""
        self._run(commands_below("operating.md", "Restore")[1], folder)

    def _run(self, commands: str, folder: Path) -> None:
        """Runs commands of a page in a folder, for the services of this project."""
        ours = f'docker() {{ shift; command docker {shlex.join(self._options())} "$@"; }}\n'
        subprocess.run(["/bin/sh", "-ec", ours + commands], cwd=folder, check=True)  # noqa: S603


def build(context: Path, image: str) -> None:
    """Builds the image of the service by its Dockerfile, as compose does it."""
    arguments = {}
    if "PYTHON_IMAGE" in os.environ:
        arguments = {"PYTHON_IMAGE": os.environ["PYTHON_IMAGE"]}
        arguments["PIP_EXTRA_INDEX_URL"] = os.environ.get("PIP_EXTRA_INDEX_URL", "")
    asked = {
        "context": str(context),
        "dockerfile": str(ROOT / "docker" / "Dockerfile"),  # of now, whatever is built
        "target": "cpu",
        "args": arguments,
    }
    given = {"services": {"api": {"image": image, "build": asked}}}
    command = ("compose", f"--project-name={NAME}", "--file=-", "build", "api")
    docker(*command, feed=json.dumps(given).encode())


def build_local_images() -> None:
    """Builds database and proxy on a base that is given."""
    base = os.environ.get("PYTHON_IMAGE")
    if base is None:
        return
    for name in ("database", "proxy"):
        asked = {
            "context": str(IMAGES),
            "dockerfile": f"{name}.Dockerfile",
            "args": {"BASE": base},
        }
        given = {"services": {name: {"image": f"{NAME}:{name}", "build": asked}}}
        command = ("compose", f"--project-name={NAME}", "--file=-", "build", name)
        docker(*command, feed=json.dumps(given).encode())


def wait_for(client: httpx2.Client, job: str, *states: str) -> dict[str, Any]:
    """Waits until a job has one of some states; gives the job."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = client.get(f"/v1/jobs/{job}")
        # The proxy says so while the server starts again.
        if answer.status_code != 503:
            found: dict[str, Any] = answer.raise_for_status().json()
            if found["state"] in states:
                return found
            assert found["state"] not in {"failed", "cancelled"}, found
        time.sleep(0.5)
    raise AssertionError(f"job {job} did not become {states}")
