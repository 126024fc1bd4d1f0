"""The rules about the project as a whole: who imports whom, sizes, names, documentation."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from difficulty_service.base import errors
from difficulty_service.cli import create_app

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("difficulty_service", "trainer", "api")
LONGEST_FILE = 500
LONGEST_IMPORT_RULES = 240  # lines of pyproject.toml
IMPORT_RULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]

# For each contract, a module and what it must not import.
VIOLATIONS = {
    "users": ("difficulty_service.base.errors", "api.settings"),
    "service": ("difficulty_service.base.files", "difficulty_service.scores.file"),
    "trainer": ("trainer.config.steps", "trainer.run_folder"),
    "api": ("api.settings", "api.logs"),
    "circles": ("difficulty_service.features.shard", "difficulty_service.features.store"),
    "arrays": ("difficulty_service.gaussians.moments", "PIL"),
    "tensors": ("trainer.losses.mmce", "sklearn"),
    "entrance": ("trainer.samples", "difficulty_service.scorers.mahalanobis"),
    "open-clip": ("difficulty_service.backbones.weights", "open_clip"),
    "timm": ("difficulty_service.backbones.clip", "timm"),
    "ray": ("difficulty_service.extraction.engines.local", "ray"),
    "faiss": ("difficulty_service.scorers.kmeans", "faiss"),
    "onnxruntime": ("difficulty_service.backbones.frozen_network", "onnxruntime"),
    "transformers": ("difficulty_service.backbones.clip", "transformers"),
    "front-ends": ("difficulty_service.cli.mcp", "difficulty_service.interface.scores"),
    "mcp": ("difficulty_service.client.mcp_tools", "mcp"),
    "anywidget": ("difficulty_service.interface.plots", "anywidget"),
}

LOADED_ON_DEMAND = (
    *(
        "anywidget",
        "datasets",
        "faiss",
        "matplotlib",
        "mcp",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "open_clip",
        "ray",
        "timm",
        "transformers",
    ),
)


def python_files() -> list[Path]:
    folders = [ROOT / name for name in (*PACKAGES, "benchmarks", "tests")]
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


def project_files() -> list[Path]:
    """Files that are or would be committed."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(  # noqa: S603 - fixed arguments
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    files = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [file for file in files if file.is_file()]


def check_imports(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Checks the import rules in another process, because the checker turns off all loggers."""
    return subprocess.run(  # noqa: S603 - fixed arguments
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_import_rules_hold() -> None:
    run = check_imports(ROOT)

    assert run.returncode == 0, run.stdout


@pytest.fixture(scope="module")
def broken_contracts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is reported of each contract, by its name, where every one of them is violated."""
    folder = tmp_path_factory.mktemp("violations")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pyc*"))
    for module, imported in VIOLATIONS.values():
        file = folder / f"{module.replace('.', '/')}.py"
        file.write_text(f"{file.read_text()}\nimport {imported}\n")
    sections = check_imports(folder).stdout.partition("Broken contracts")[2]
    parts = re.split(r"^(.+)\n-+$", sections, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("contract", IMPORT_RULES["contracts"], ids=lambda each: each["id"])
def test_every_import_rule_catches_a_violation(
    broken_contracts: dict[str, str], contract: dict[str, str]
) -> None:
    module, imported = VIOLATIONS[contract["id"]]
    expected = f"- {module} -> {imported} (l."
    if contract["type"] == "acyclic_siblings":
        expected = f"No cycles are allowed in {module.rpartition('.')[0]}. "

    report = " ".join(broken_contracts[contract["name"]].split())

    assert expected in report


def test_the_import_rules_stay_short() -> None:
    text = (ROOT / "pyproject.toml").read_text()

    tables = re.split(r"^(?=\[)", text, flags=re.MULTILINE)

    rules = [table for table in tables if re.match(r"\[+tool\.importlinter", table)]

    assert len(rules) == 1 + len(IMPORT_RULES["contracts"])
    assert sum(len(table.splitlines()) for table in rules) < LONGEST_IMPORT_RULES


def test_no_source_file_grows_too_long() -> None:
    lengths = {str(f.relative_to(ROOT)): len(f.read_text().splitlines()) for f in python_files()}

    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


@pytest.mark.slow
def test_importing_every_module_loads_no_heavy_or_optional_package() -> None:
    modules = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in python_files()
        if file.is_relative_to(ROOT / "difficulty_service")
    ]
    program = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {LOADED_ON_DEMAND!r} if name in sys.modules]))\n"
    )

    run = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


def test_every_error_stands_in_the_tree_under_its_parent() -> None:
    entry = re.compile(r"^([│ ]*)(?:[├└]── )?([A-Z]\w+)", re.MULTILINE)
    drawn: dict[str, str] = {}
    path: list[str] = []
    tree = str(errors.__doc__).split("\n\n")[1]
    for indent, name in entry.findall(tree):
        depth = len(indent) // 4 + (1 if path else 0)
        path[depth:] = [name]
        drawn[name] = path[depth - 1] if depth else "Exception"

    defined = {
        name: error.__base__.__name__
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, Exception)
    }

    assert drawn == defined


def test_the_service_has_no_public_names_of_its_own() -> None:
    tree = ast.parse((ROOT / "api" / "__init__.py").read_text())

    assert ast.get_docstring(tree)
    assert [type(each) for each in tree.body] == [ast.Expr, ast.Import]


def test_every_constraint_is_a_name_and_a_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    pins = [line for line in lines if line and not line.startswith("#")]

    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.+!]+", pin)] == []


def test_the_citation_names_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert [each["name"] for each in citation["authors"]] == [
        each["name"] for each in project["authors"]
    ]


def test_no_file_names_a_registry_or_the_folder_it_was_written_in() -> None:
    private = [re.escape(str(ROOT)), re.escape(str(ROOT.parent / "shared"))]
    pattern = re.compile("|".join([r"pypi\.(?=org)", r"python(?=hosted\.)", *private]))

    found = []
    for file in project_files():
        match = pattern.search(file.read_text(errors="ignore"))
        if match and file != Path(__file__):
            found.append(f"{file.relative_to(ROOT)}: {match[0]}")

    assert found == []


def test_no_file_holds_both_sides_of_a_merge() -> None:
    sign = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)

    assert [
        str(file.relative_to(ROOT))
        for file in project_files()
        if sign.search(file.read_text(errors="ignore"))
    ] == []


def test_every_command_of_the_readme_exists() -> None:
    blocks = re.findall(r"```[a-z]*\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    named = set(re.findall(r"^(?:\$ )?difficulty ([a-z]\w*)", "\n".join(blocks), re.MULTILINE))

    assert named - set(create_app()) == set()
