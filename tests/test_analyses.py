"""Every analysis is one folder and one line, and a package may add one that is everywhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import difficulty_service as ds
from difficulty_service.base.analyses import FOLDERS, ability, all_analyses, own_analyses
from difficulty_service.base.errors import MissingAnalysis
from difficulty_service.bodies.comparisons import COMPARISONS
from tests.factories import write_image_folder
from tests.ports import unused_port

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("difficulty_service", "trainer", "api")
FOLDERS_OF_PROJECT = {*PACKAGES, "tests", "benchmarks", "docs", "docker", "findings", ".ci"}

ENTRY_POINTS = """
[difficulty.analyses]
brightest = brightest_samples:BRIGHTEST
"""

DECLARATION = '''
"""A package that asks which samples have the longest features."""

from difficulty_service.base.plugins import Analysis

BRIGHTEST = Analysis(
    "brightest",
    commands=("brightest_samples.work:brightest",),
    functions=("brightest_samples.work:brightest_of",),
    comparison="brightest_samples.work:ASKED",
)
'''

WORK = '''
"""What the declaration stands for."""

from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import ConfigDict

from difficulty_service.base.contract import Found
from difficulty_service.bodies.comparison_kinds import Compared, Comparison, JobId, OtherJobs, Side
from difficulty_service.settings.option_types import Options


class BrightestCreate(Options):
    """Which samples have the longest features."""

    model_config = ConfigDict(defer_build=False)

    kind: Literal["brightest"]

    other: JobId | None = None
    """Another job, whose samples are not listed."""

    count: int = 1
    """Number of samples to list."""


class BrightestResult(Found):
    """What was found."""

    longest: float
    """Length of the longest features."""


def longest_of(split, count):
    blocks = [(block.lengths, block.positions) for block in split.blocks()]
    rows = [(float(n), split.sample_ids[int(at)].as_py()) for a, b in blocks for n, at in zip(a, b)]
    rows.sort(reverse=True)
    lengths, ids = zip(*rows[:count])
    return pa.table({"sample_id": ids, "length": lengths})


def find(asked, job, others, earlier, tell):
    table = longest_of(job.split, asked.count)
    tell(1.0)
    return Compared(BrightestResult(longest=table["length"][0].as_py()), table)


ASKED = Comparison(
    kind="brightest",
    title="The longest features",
    sentence="Samples whose features are longest.",
    body=BrightestCreate,
    result=BrightestResult,
    others=OtherJobs("other", "Job whose samples are left out", needed=False),
    find="brightest_samples.work:find",
    summary=lambda asked, found: f"{found.longest:.1f} is the longest",
    sides=(Side("sample_id"),),
)


def brightest(features: Path, /, *, count: int = 1) -> None:
    """Lists the samples with the longest features.

    Args:
        features: Features that `difficulty extract` wrote.
        count: Number of samples to list.
    """
    print(brightest_of(features, count=count).to_pylist())


def brightest_of(features, *, count=1):
    """The samples with the longest features."""
    from difficulty_service.scoring.splits import open_split

    return longest_of(open_split(Path(features)), count)
'''


def test_each_folder_has_its_line_and_declares_itself_under_its_name() -> None:
    folders = {path.parent.name for path in (ROOT / "difficulty_service/analyses").glob("*/*.py")}

    assert folders == set(FOLDERS)
    assert all(each.name == name for name, each in own_analyses().items())


@pytest.mark.parametrize("name", FOLDERS)
def test_what_an_analysis_declares_is_there_under_the_name_it_has(name: str) -> None:
    analysis = all_analyses()[name]

    paths = [*analysis.commands, *analysis.functions, *analysis.abilities.values()]
    assert paths
    for path in paths:
        assert path.startswith(f"difficulty_service.analyses.{name}.")
        assert resolve_name(path).__name__ == path.partition(":")[2]
    for path in analysis.functions:
        assert getattr(ds, path.partition(":")[2]) is resolve_name(path)
    if analysis.comparison is not None:
        asked = resolve_name(analysis.comparison)
        assert COMPARISONS[asked.kind] is asked
        assert resolve_name(asked.find)


def test_asking_an_analysis_that_is_not_there_says_so() -> None:
    with pytest.raises(MissingAnalysis, match="this installation has no analysis of tides"):
        ability("tides", "judge")


def linked(source: str, copy: str) -> None:
    """A copy of a file that is not written to: the same file where both places are on one disk."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)


def copy_without(names: Iterable[str], folder: Path) -> None:
    """Copies the packages and the tests, with what is compiled, without some analyses."""
    for path in ROOT.iterdir():
        if path.name in FOLDERS_OF_PROJECT:
            shutil.copytree(path, folder / path.name, copy_function=linked)
        elif path.is_file():
            shutil.copy(path, folder)
    for name in names:
        shutil.rmtree(folder / "difficulty_service/analyses" / name)
        _drop_lines(name, folder)


def _drop_lines(name: str, folder: Path) -> None:
    for file, line in (
        ("difficulty_service/base/analyses.py", rf'    "{name}",\n'),
        # Read by type checkers only.
        (
            "difficulty_service/__init__.py",
            rf"    from difficulty_service\.analyses\.{name}\.\w+ import (\([^)]*\)|[^\n]*)\n",
        ),
    ):
        path = folder / file
        text, count = re.subn(line, "", path.read_text("utf-8"))
        assert count
        path.unlink()  # else a link would be written through
        path.write_text(text, "utf-8")


REST = (
    "tests/test_analyses.py::test_each_folder_has_its_line_and_declares_itself_under_its_name",
    "tests/test_analyses.py::test_what_an_analysis_declares_is_there_under_the_name_it_has",
    "tests/difficulty_service/client/test_requests.py",
)
"""Tests that are run without an analysis. With DIFFICULTY_REST=1, so are all that are not slow,
which takes minutes for each."""

WITHOUT_AN_ANALYSIS = """
import contextlib, json, os, pkgutil, sys
from importlib import import_module

# What is not of this project is loaded once, for all the processes that are forked below.
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        import_module(name)
import pytest


def look(folder, name, tests):
    os.chdir(folder)
    sys.path[0] = os.environ["PYTHONPATH"] = folder
    os.environ["DIFFICULTY_WITHOUT_ANALYSES"] = name
    packages = ("difficulty_service", "trainer", "api")
    for package in packages:
        for each in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if each.name.endswith("__main__") or ".migrations." in each.name:  # these run something
                continue
            try:
                import_module(each.name)
            except ModuleNotFoundError as error:
                if error.name.partition(".")[0] in packages:  # others are optional packages
                    raise

    import difficulty_service as ds
    from api.app import create_app
    from api.settings import Settings
    from difficulty_service.cli import create_app as commands

    paths = json.dumps(create_app(Settings(data_dir="data")).openapi())
    left = {"names": dir(ds), "commands": list(commands()), "paths": paths}
    return left | {"tests": pytest.main(["-q", "--assert=plain", "-p", "no:cacheprovider", *tests])}


for line in sys.stdin:
    folder, name, tests = json.loads(line)
    answers = os.dup(1)
    process = os.fork()
    if not process:
        log = os.open(f"{folder}/log.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        answer = json.dumps(look(folder, name, tests))
        sys.stdout.flush()
        os.write(answers, f"{answer}\\n".encode())
        os._exit(0)
    if os.waitpid(process, 0)[1]:
        os.write(answers, b"null\\n")
    os.close(answers)
"""

LOADED = (
    *("torch", "torchvision.transforms.v2", "transformers", "timm", "open_clip", "accelerate"),
    *("scipy.stats", "sklearn.linear_model", "pandas", "matplotlib.pyplot", "onnxruntime"),
    *("pyarrow.dataset", "fastapi", "sqlalchemy", "alembic", "uvicorn", "cyclopts", "httpx2"),
    *("lightning", "torch.distributed.fsdp", "transformers.trainer", "datasets", "structlog"),
    *("prometheus_client", "pydantic_settings", "limits", "markdown_it", "cyclopts.validators"),
)


@pytest.fixture(scope="module")
def look_without() -> Iterator[Callable[[Path, str], dict[str, Any] | None]]:
    """Says what is there in a copy without an analysis, and how its tests end."""
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", WITHOUT_AN_ANALYSIS, *LOADED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def look(folder: Path, name: str) -> dict[str, Any] | None:
            print(json.dumps([str(folder), name, REST]), file=asked, flush=True)
            left: dict[str, Any] | None = json.loads(answers.readline())
            return left

        yield look
        asked.close()


@pytest.mark.long
@pytest.mark.parametrize("name", FOLDERS)
def test_without_its_folder_and_line_an_analysis_is_gone_and_the_rest_works(
    name: str, look_without: Callable[[Path, str], dict[str, Any] | None], tmp_path: Path
) -> None:
    copy_without([name], tmp_path)

    left = look_without(tmp_path, name)

    log = (tmp_path / "log.txt").read_text("utf-8")[-3000:]
    assert left is not None, log
    assert left["tests"] == 0, log
    gone = all_analyses()[name]
    for path in gone.functions:
        assert path.partition(":")[2] not in left["names"]
    for path in gone.commands:
        assert path.partition(":")[2].replace("_", "-") not in left["commands"]
    others = [each for each in all_analyses().values() if each.name != name]
    assert {path.partition(":")[2] for each in others for path in each.functions} <= {
        *left["names"]
    }
    assert "score" in left["commands"]
    if gone.comparison is not None:
        assert resolve_name(gone.comparison).body.__name__ not in left["paths"]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not os.environ.get("DIFFICULTY_REST"), reason="takes minutes for each analysis")
@pytest.mark.parametrize(
    "names",
    # Jobs are asked at least one question, without which the service would have an empty type.
    [tuple({*FOLDERS} - {"leaks"}), *((name,) for name in FOLDERS)],
    ids=lambda names: names[0] if len(names) == 1 else "all but leaks",
)
def test_all_other_tests_pass_without_analyses(names: tuple[str, ...], tmp_path: Path) -> None:
    copy_without(names, tmp_path)

    rest = subprocess.run(  # noqa: S603
        [
            *(sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("tests", "-n", "3", "--dist", "loadfile", "-m", "not slow"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "DIFFICULTY_WITHOUT_ANALYSES": " ".join(names),
        },
        check=False,
        capture_output=True,
        text=True,
    )

    assert rest.returncode == 0, rest.stdout[-3000:]


@pytest.fixture
def plugged(tmp_path: Path) -> dict[str, str]:
    """The environment of processes in which another package adds an analysis."""
    site = tmp_path / "site"
    package = site / "brightest_samples"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(DECLARATION)
    (package / "work.py").write_text(WORK)
    (site / "brightest-1.0.dist-info").mkdir()
    (site / "brightest-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: brightest\nVersion: 1.0\n"
    )
    (site / "brightest-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(site), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}


SERVED = """
import json, sys, threading
from pathlib import Path

import httpx2
import uvicorn

import difficulty_service as ds
from api.app import create_app
from api.jobs.queue import claim, succeed
from api.settings import Settings
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from difficulty_service.client import Client, JobCreate, JobDataset

folder, port = Path(sys.argv[1]), int(sys.argv[2])
roots = {"photos": str(folder)}
settings = Settings(data_dir=folder / "data", roots=roots, default_backbone="builtin", device="cpu")
app = create_app(settings)
server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
threading.Thread(target=server.run, daemon=True).start()
while not server.started:
    pass
address = f"http://127.0.0.1:{port}"
get = httpx2.Client(base_url=address, timeout=120).get
with Client(address) as client:
    job = client.submit(JobCreate(dataset=JobDataset(root="photos", path="images")))
    services = app.state.services
    claimed = claim(services.engine, "worker", "cpu", 600.0)
    result = run_job(claimed, settings, services.engine, services.artifacts, Observer())
    succeed(services.engine, claimed, result)
    found = client.compare(job.id, "brightest", count=3)
    table = client.comparison_table(job.id, found.id)
    described = get("/openapi.json").json()
    form = get(f"/jobs/{job.id}/comparisons").text
    page = get(f"/jobs/{job.id}/comparisons/{found.id}").text
(folder / "answers.json").write_text(json.dumps({
    "state": found.state,
    "summary": found.summary,
    "rows": table.num_rows,
    "openapi": described["components"]["schemas"]["BrightestCreate"]["properties"]["count"],
    "form": "Samples whose features are longest." in form and 'name="count"' in form,
    "page": table["sample_id"][0].as_py() in page and "longest" in page,
    "python": ds.brightest_of.__doc__,
    "listed": "brightest_of" in dir(ds),
}))
server.should_exit = True
"""


@pytest.mark.long
def test_an_analysis_of_another_package_is_in_help_python_openapi_client_and_pages(
    plugged: dict[str, str], tmp_path: Path
) -> None:
    write_image_folder(tmp_path / "images", ("cat", "dog"), 12, size=(16, 16))

    def run(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603
            [sys.executable, *arguments],
            env=plugged,
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = run("-m", "difficulty_service", "--help")
    helped = run("-m", "difficulty_service", "brightest", "--help")
    run("-W", "ignore", "-c", SERVED, str(tmp_path), str(unused_port()))

    assert "Lists the samples with the longest features." in listed
    assert "Number of samples to list." in helped
    found = json.loads((tmp_path / "answers.json").read_text())
    described = {"description": "Number of samples to list.", "default": 1}
    assert described.items() <= found.pop("openapi").items()
    assert found.pop("summary").endswith("is the longest")
    assert found == {
        "state": "succeeded",
        "rows": 3,
        "form": True,
        "page": True,
        "python": "The samples with the longest features.",
        "listed": True,
    }
