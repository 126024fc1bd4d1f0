"""The core runs without the packages of the extras, and what needs one says which.

Packages are hidden from new processes and from all that these start, as if not installed. These
processes are forked from one that has imported the slowest packages of the core.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import difficulty_service as ds
from difficulty_service.base.errors import MissingPackage
from difficulty_service.base.extras import needs_extra

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
USED_IF_PRESENT = {"keras", "lightning", "sklearn"}
"""Packages that no extra brings: users pass their objects, or ask for them."""

OF_OTHER_LOOPS = ("trainer.loops.hugging_face", "trainer.loops.keras", "trainer.loops.lightning")
"""Modules for people who train with the package of the same name, and have it."""

HIDE = """
import json, os, sys

HIDDEN = json.loads(os.environ["HIDDEN_PACKAGES"])

class WithoutHidden:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *arguments):
        hidden = name.partition(".")[0] in HIDDEN["modules"]
        return None if hidden else self.finder.find_spec(name, *arguments)

    def find_distributions(self, *arguments):
        find = getattr(self.finder, "find_distributions", lambda *_: ())
        for found in find(*arguments):
            if found.name not in HIDDEN["distributions"]:
                yield found

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(WithoutHidden, sys.meta_path)
"""


owners_of_modules = cache(packages_distributions)


def requirements(extras: Sequence[str] = ()) -> list[Requirement]:
    """What the project itself needs with some extras."""
    return [Requirement(line) for line in PROJECT["dependencies"]] + [
        Requirement(line) for extra in extras for line in EXTRAS[extra]
    ]


def closure(first: Sequence[Requirement]) -> set[str]:
    """Names of the distributions that an installation of these requirements brings."""
    found: set[tuple[str, str]] = set()
    waiting = [(each, "") for each in first]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for chosen in {"", *requirement.extras}:
            if (name, chosen) not in found:
                found.add((name, chosen))
                try:
                    lines = requires(name) or []
                except PackageNotFoundError:
                    continue
                waiting += [(Requirement(line), chosen) for line in lines]
    return {name for name, _ in found}


@cache
def hidden_packages(*extras: str) -> dict[str, list[str]]:
    """Modules and distributions that neither the core nor some extras bring."""
    kept = closure(requirements(extras)) | {canonicalize_name(PROJECT["name"]), "pip"}
    modules, distributions = set(), set()
    for module, owners in owners_of_modules().items():
        if not {canonicalize_name(owner) for owner in owners} & kept:
            modules.add(module)
            distributions |= set(owners)
    return {"modules": sorted(modules), "distributions": sorted(distributions)}


PRELOADED = ("open_clip", "pyarrow.dataset", "scipy.stats", "timm", "torch", "torchvision")
"""Packages of the core that take seconds to import."""

FORKING = """
import gc, importlib, json, multiprocessing, os, runpy, sys
import sitecustomize

def run(call):
    os.environ["HIDDEN_PACKAGES"] = json.dumps(call["hidden"])
    sitecustomize.HIDDEN = call["hidden"]
    os.chdir(call["folder"])
    for number, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(call[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    option, program, *arguments = call["words"]
    sys.argv[:] = [option, *arguments]
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})

for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()
for line in sys.stdin:
    child = multiprocessing.get_context("fork").Process(target=run, args=(json.loads(line),))
    child.start()
    child.join()
    print(child.exitcode, flush=True)
"""


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    """Python that has imported packages of the core, and no other, and forks for each call."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(HIDE)
    path = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "HIDDEN_PACKAGES": json.dumps(hidden_packages()),
        "COLUMNS": "400",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    with subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-c", FORKING, *PRELOADED],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield started


@pytest.fixture
def run_with(interpreter: "subprocess.Popen[str]", tmp_path: Path) -> Run:
    """Runs Python where the core and some extras alone are installed."""

    def run(extras: Sequence[str], *words: str) -> "subprocess.CompletedProcess[str]":
        assert interpreter.stdin is not None
        assert interpreter.stdout is not None
        files = [tmp_path / name for name in ("output", "errors")]
        for file in files:
            file.write_text("")
        call = {
            "hidden": hidden_packages(*extras),
            "folder": str(tmp_path),
            "output": str(files[0]),
            "errors": str(files[1]),
            "words": words,
        }
        print(json.dumps(call), file=interpreter.stdin, flush=True)
        code = int(interpreter.stdout.readline())
        return subprocess.CompletedProcess(words, code, *(file.read_text() for file in files))

    return run


@pytest.fixture
def core(run_with: Run) -> Run:
    """Runs Python where the core alone is installed."""
    return partial(run_with, ())


@pytest.mark.long
def test_a_hidden_package_is_absent(core: Run) -> None:
    program = (
        "from importlib.util import find_spec; from importlib.metadata import distributions; "
        "names = {each.name for each in distributions()}; "
        "print(find_spec('accelerate'), find_spec('fastapi'), {'accelerate', 'fastapi'} & names)"
    )

    assert core("-c", program).stdout == "None None set()\n"


@pytest.mark.long
def test_the_core_scores_the_demo_and_draws_its_report(core: Run, tmp_path: Path) -> None:
    done = core("-m", "difficulty_service", "demo", "--no-open", "--out", "demo")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "scores.parquet").exists()
    assert (tmp_path / "demo" / "report.html").exists()


@pytest.mark.slow
def test_every_name_of_the_python_interface_loads_from_the_core(core: Run) -> None:
    program = "import difficulty_service as ds; print({n for n in ds.__all__ if getattr(ds, n)})"

    done = core("-c", program)

    assert done.returncode == 0, done.stderr
    assert "score_dataset" in done.stdout


@pytest.mark.slow
def test_help_lists_the_commands_of_all_extras(core: Run) -> None:
    done = core("-m", "difficulty_service", "--help")

    assert {"score", "train", "serve", "explore"} <= set(re.findall(r"│ (\w+)", done.stdout))
    assert core("-m", "difficulty_service", "score", "--help").returncode == 0


@pytest.mark.parametrize(
    ("words", "extra", "package"),
    [
        ("train x.toml", "train", "accelerate"),
        ("compare runs", "train", "accelerate"),
        ("serve", "serve", "structlog"),
        ("keys list", "serve", "sqlalchemy"),
        ("explore scores.parquet", "serve", "structlog"),
        ("mcp", "mcp", "mcp"),
    ],
)
def test_a_command_without_its_packages_is_one_line_with_the_remedy(
    core: Run, words: str, extra: str, package: str
) -> None:
    done = core("-m", "difficulty_service", *words.split())

    command = " ".join(word for word in words.split() if word.isalpha() and word != "runs")
    assert done.returncode == 1
    assert done.stderr == (
        f'error: "difficulty {command}" needs packages that are not installed ({package}); '
        f"install them with: pip install 'difficulty-service[{extra}]'\n"
    )


@pytest.mark.slow
def test_training_from_python_without_its_packages_names_the_extra(core: Run) -> None:
    done = core("-c", "import trainer; trainer.train")

    assert done.stderr.splitlines()[-1] == (
        "difficulty_service.base.errors.MissingPackage: trainer.train needs packages that are not "
        "installed (accelerate); install them with: pip install 'difficulty-service[train]'"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("method", "package"), [("plot", "matplotlib"), ("review", "anywidget")])
def test_a_notebook_without_its_packages_is_told_the_extra(
    core: Run, tmp_path: Path, method: str, package: str
) -> None:
    labels = np.arange(40) % 2
    noise = np.random.default_rng(0).standard_normal((40, 3))
    path = str(ds.score(noise + 5 * labels[:, None], labels).save(tmp_path / "scores.parquet"))

    done = core("-c", f"import difficulty_service as ds; ds.open_scores({path!r}).{method}()")

    assert done.stderr.splitlines()[-1] == (
        f"difficulty_service.base.errors.MissingPackage: Scores.{method} needs packages that are "
        f"not installed ({package}); install them with: pip install 'difficulty-service[notebook]'"
    )


PACKAGES = pytest.mark.parametrize(
    ("package", "extras"),
    [("difficulty_service", ()), ("trainer", ("train",)), ("api", ("serve",))],
)

IMPORT_ALL = """
import importlib, pathlib, sys
package = importlib.import_module(sys.argv[1])
root = pathlib.Path(package.__file__).parent.parent
for file in sorted(root.joinpath(sys.argv[1]).rglob("*.py")):
    name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    if ".migrations." not in name and name not in sys.argv[2:]:
        importlib.import_module(name)
"""


@pytest.mark.slow
@PACKAGES
def test_every_module_is_imported_with_its_own_extra_alone(
    run_with: Run, package: str, extras: tuple[str, ...]
) -> None:
    done = run_with(extras, "-c", IMPORT_ALL, package, *OF_OTHER_LOOPS)

    assert done.returncode == 0, done.stderr


def imported(package: str) -> Iterator[tuple[str, Path]]:
    """Top-level names that a package imports anywhere, each with its file."""
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from ((each.name.partition(".")[0], file) for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(node.module).partition(".")[0], file


ON_DEMAND = (
    "cpu",
    "hugging-face",
    "heic",
    "map",
    "mcp",
    "notebook",
    "postgresql",
    "ray",
    "text",
    "xlsx",
)
"""Extras whose packages are imported where they are asked for."""


@PACKAGES
def test_every_imported_package_is_declared(package: str, extras: tuple[str, ...]) -> None:
    named = {canonicalize_name(each.name) for each in requirements([*extras, *ON_DEMAND])}
    owners = owners_of_modules()

    undeclared = {
        f"{module} in {file.relative_to(ROOT)}"
        for module, file in imported(package)
        if module not in sys.stdlib_module_names | USED_IF_PRESENT
        and module not in ("api", "difficulty_service", "trainer")
        and not {canonicalize_name(owner) for owner in owners.get(module, [])} & named
    }

    assert undeclared == set()


def test_every_requirement_has_a_lower_bound() -> None:
    lines = PROJECT["dependencies"] + [line for extra in EXTRAS.values() for line in extra]

    unbounded = [
        line
        for line in lines
        if Requirement(line).name != PROJECT["name"]
        and ">=" not in str(Requirement(line).specifier)
    ]

    assert unbounded == []


def test_every_requirement_admits_the_version_that_is_tested() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    tested = {canonicalize_name(name): version for name, version in pins.items()}
    lines = PROJECT["dependencies"] + [line for extra in EXTRAS.values() for line in extra]

    refused = [
        str(each)
        for each in map(Requirement, lines)
        if each.name != PROJECT["name"]
        and not each.specifier.contains(tested[canonicalize_name(each.name)])
    ]

    assert refused == []


def test_all_is_every_extra_of_users_but_the_two_that_exclude_each_other() -> None:
    (everything,) = map(Requirement, EXTRAS["all"])

    assert everything.extras == EXTRAS.keys() - {"all", "cpu", "gpu", "dev", "docs", "peers"}


def test_a_package_that_is_there_and_cannot_be_imported_is_not_called_absent() -> None:
    with (
        pytest.raises(MissingPackage, match=r"packages that are damaged \(no libfaiss.so\)"),
        needs_extra("this", "cpu"),
    ):
        raise ImportError("no libfaiss.so", name="numpy")
