"""Real images, scored and explored by the commands as a person runs them."""

import os
import runpy
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest

from difficulty_service.scores.file import read_scores
from tests.browser.kinds import BrowserContext, Exploring, Page, Scored

TIMEOUT = 120.0
LINES = 5  # that are printed once it serves

ForkCommand = Callable[..., ForkServerProcess]


@pytest.fixture(scope="session")
def run_words(commands: Path) -> Callable[[str, Path], str]:
    """Runs a line of a shell in a folder; gives what it prints."""

    def run(line: str, folder: Path) -> str:
        program, *words = shlex.split(line)
        assert program == "difficulty"
        done = subprocess.run(  # noqa: S603 - our own command
            [commands / program, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def cifar10(
    shared: Path, run_words: Callable[[str, Path], str], tmp_path_factory: pytest.TempPathFactory
) -> Scored:
    """Every fifth of the test images, scored into scores.parquet, with the report."""
    dataset = shared / "data" / "cifar10_test.parquet"
    if not dataset.exists():
        pytest.skip(f"there is no {dataset}")
    folder = tmp_path_factory.mktemp("cifar10")
    options = "--out scores.parquet --report report.html --limit 2000"
    begun = time.perf_counter()
    output = run_words(f"difficulty score {shlex.quote(str(dataset))} {options}", folder)
    seconds = time.perf_counter() - begun
    rows = read_scores(folder / "scores.parquet").table.to_pylist()
    images = pq.read_table(dataset, columns=["filename", "image"]).to_pylist()
    pictures = {image["filename"]: image["image"] for image in images}
    return Scored(folder, output, seconds, rows, pictures)


@pytest.fixture(scope="session")
def messy(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photographs of which forty lie in a wrong class, their list, and weights."""
    pytest.importorskip("pandas", reason="the folder is made with pandas")
    tool = shared / "tools" / "messy_folder.py"
    if not tool.exists():
        pytest.skip(f"there is no {tool}")
    made, here = tmp_path_factory.mktemp("messy"), Path.cwd()
    words, sys.argv = sys.argv, [str(tool), str(made)]
    try:
        runpy.run_path(str(tool), run_name="__main__")
    finally:
        sys.argv = words
        os.chdir(here)
    (made / "weights").symlink_to(shared.absolute() / "weights")
    return made


@pytest.fixture(scope="session")
def exploring(fork_command: ForkCommand) -> Exploring:
    """Runs `difficulty explore` from a line of a shell; gives what it prints while it serves."""

    @contextmanager
    def run(line: str, folder: Path) -> Iterator[str]:
        with TemporaryDirectory() as written:
            output = Path(written, "output")
            process = fork_command(*shlex.split(line)[1:], folder=folder, output=output)
            while not output.exists() or output.read_text().count("\n") < LINES:
                assert process.is_alive()
                process.join(0.05)
            try:
                yield output.read_text()
            finally:
                process.terminate()
                process.join(TIMEOUT)
        assert process.exitcode == 0

    return run


@pytest.fixture
def open_address(make_context: Callable[..., BrowserContext]) -> Callable[[str], Page]:
    """Opens a page that may only ask the server of its address."""

    def open_one(address: str) -> Page:
        server = address[: address.index("/jobs/")]
        page = make_context((server,), base_url=server).new_page()
        page.goto(address)
        return page

    return open_one
