"""A folder or file of the user that is named like one of our packages is never run by a command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import difficulty_service

MODULE = ("-m", "difficulty_service")
SCRIPT = ("-c", "import sys; from difficulty_service.cli import main; sys.exit(main())")
"""What the command `difficulty` is: a file of two lines, in a folder without other modules."""
LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node", "1", *MODULE)
RAN = "raise SystemExit(open(r'{marker}', 'w').write(__file__))"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that names the module of the user that has been run, once one has."""
    return tmp_path / "marker"


def what_ran(marker: Path) -> str:
    """The file of the user that has been run; nothing if none has."""
    return marker.read_text() if marker.exists() else ""


@pytest.fixture(params=["api/__init__.py trainer.py", "api.py trainer/__init__.py"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, marker: Path) -> Path:
    """A folder with modules of the user that have the names of our packages."""
    folder = tmp_path / "project"
    for name in request.param.split():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(RAN.format(marker=marker))
    return folder


loading_torch = pytest.mark.parametrize("folder", ["api/__init__.py trainer.py"], indirect=True)
"""For what takes seconds: one folder with both names and both forms."""


def run(
    *arguments: object, cwd: Path, path: tuple[Path, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    own = filter(None, [os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), *own])}
    return subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment | {"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("start", [MODULE, SCRIPT], ids=["module", "script"])
def test_help_in_a_folder_with_such_a_module_is_of_our_commands(
    folder: Path, marker: Path, start: tuple[str, ...]
) -> None:
    done = run(*start, "--help", cwd=folder)

    assert done.returncode == 0, done.stderr
    assert "│ serve " in done.stdout
    assert "│ train " in done.stdout
    assert what_ran(marker) == ""


@pytest.mark.long
@loading_torch
def test_a_launcher_of_modules_trains_with_our_trainer(folder: Path, marker: Path) -> None:
    done = run(*LAUNCHER, "train", "missing.toml", cwd=folder)

    assert "missing.toml" in done.stderr
    assert what_ran(marker) == ""


@pytest.mark.parametrize("start", [MODULE, SCRIPT], ids=["module", "script"])
def test_such_a_module_on_the_python_path_is_not_run(
    folder: Path, marker: Path, tmp_path: Path, start: tuple[str, ...]
) -> None:
    done = run(*start, "keys", "create", "--help", cwd=tmp_path, path=(folder,))

    assert done.returncode == 0, done.stderr
    assert "--scopes" in done.stdout
    assert what_ran(marker) == ""


@pytest.mark.long
@loading_torch
@pytest.mark.parametrize(("start", "place"), [(MODULE, "working folder"), (SCRIPT, "path")])
def test_child_processes_of_a_command_run_our_modules(
    folder: Path, marker: Path, tmp_path: Path, start: tuple[str, ...], place: str
) -> None:
    cwd, path = (tmp_path, (folder,)) if place == "path" else (folder, ())

    # The score file is looked for in a child.
    done = run(*start, "explore", "missing.parquet", cwd=cwd, path=path)

    opening, error = done.stderr.splitlines()
    assert (done.returncode, opening) == (1, "Opening missing.parquet")
    assert error == "error: there is no score file missing.parquet"
    assert what_ran(marker) == ""


RECIPE = """
name = "own"
[data]
kind = "features"
train = "missing"
[model]
name = "my_model:Net"
"""


@pytest.mark.slow
@loading_torch
def test_a_users_own_code_is_loaded_from_the_working_folder_all_the_same(
    folder: Path, marker: Path
) -> None:
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "my_model.py").write_text("raise ValueError('my model is loaded')\n")

    done = run(*MODULE, "train", "recipe.toml", cwd=folder)

    assert "my model is loaded" in done.stderr
    assert what_ran(marker) == ""


@pytest.mark.parametrize("name", ["api", "trainer"])
def test_a_module_that_was_loaded_before_is_one_sentence_that_names_it(
    tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    (other / name).mkdir(parents=True)
    (other / name / "__init__.py").touch()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(f"import {name}\n")

    done = run(*MODULE, "--help", cwd=tmp_path, path=(tmp_path / "site", other))

    root = Path(difficulty_service.__file__).parent.parent
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {other / name / '__init__.py'} hides the package '{name}' of difficulty-service, "
        f"which belongs in {root}; install difficulty-service again, in an environment of its own\n"
    )
