"""The examples of docs/api.md and docs/client.md work as they are, and the page is complete."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.app import create_app
from api.http.problems import TITLES
from api.settings import Settings
from docs.addresses import page as addresses_page
from docs.settings import PAGE, page
from tests.api.live.running import Service

METHODS = ("get", "post", "put", "delete", "head")


def blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path, photos: Path) -> Path:
    """A folder with `photos/train`, which the examples use."""
    shutil.copytree(photos, tmp_path / "here" / "photos")
    return tmp_path / "here"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_examples_work(shared_service: Service, workplace: Path) -> None:
    # Any answer that is a problem ends the script, and shows it.
    script = 'set -euo pipefail\ncurl() { command curl --fail-with-body "$@"; }\n'

    ran = subprocess.run(  # noqa: S603 - our own page
        ["/bin/bash", "-c", script + "\n".join(blocks("bash"))],
        cwd=workplace,
        env=os.environ | {"SERVICE": shared_service.url},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"state":"succeeded"' in ran.stdout
    assert "damaged.png" in ran.stdout
    assert (workplace / "scores.parquet").read_bytes()[:4] == b"PAR1"
    assert (workplace / "hardest.jpg").read_bytes()[:2] == b"\xff\xd8"


@pytest.mark.slow
def test_the_python_examples_work(shared_service: Service, workplace: Path) -> None:
    examples = [*blocks("python"), *blocks("python", PAGE.with_name("client.md"))]
    (repeated,) = [each for each in examples if "last-job" in each]

    ran = subprocess.run(  # noqa: S603 - our own pages
        [sys.executable, "-W", "error", "-c", "\n".join([*examples, repeated])],
        cwd=workplace,
        env=os.environ | {"SERVICE": shared_service.url},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("succeeded\n")
    assert "name='cat'" in ran.stdout
    assert "\n24 of 25 images were known\n0 added, 0 removed\n" in ran.stdout
    assert (workplace / "scores.parquet").read_bytes()[:4] == b"PAR1"


def test_every_address_is_on_the_page(tmp_path: Path) -> None:
    page = PAGE.read_text()
    paths = create_app(Settings(data_dir=tmp_path)).openapi()["paths"]

    missing = [
        f"{method.upper()} {path}"
        for path, operations in paths.items()
        for method in METHODS
        if method in operations and not re.search(rf"{method.upper()}\b.*{re.escape(path)}`", page)
    ]
    assert missing == []


def test_the_table_of_addresses_is_made_of_the_routes() -> None:
    assert PAGE.read_text() == addresses_page(), "run: python docs/addresses.py"


def test_the_table_of_settings_is_made_of_their_model() -> None:
    assert PAGE.read_text() == page(), "run: python docs/settings.py"
    assert all(f"`{name.upper()}" in PAGE.read_text() for name in Settings.model_fields)


def test_every_setting_is_described() -> None:
    fields = Settings.model_fields

    assert [name for name, field in fields.items() if not field.description] == []


def test_every_problem_is_on_the_page() -> None:
    page = PAGE.read_text()

    assert [name for name in TITLES if f"`/problems/{name}`" not in page] == []
