"""`import difficulty_service` is light, and its names are complete and typed."""

import json
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import difficulty_service as ds
from difficulty_service.base.analyses import own_analyses
from difficulty_service.interface.names import HOMES

ROOT = Path(ds.__file__).parents[1]

USER_CODE = """
import numpy as np
import difficulty_service as ds

scores = ds.score(np.zeros((2, 2)), [0, 1], shrinkage="oas")
reveal_type(scores)
reveal_type(ds.RelativeMahalanobis().fit([[0.0]], [1]).predict([[0.0]]))
reveal_type(ds.backbone("builtin").encode([]))
reveal_type(ds.score_dataset("photos", split="train"))
reveal_type(ds.__version__)
reveal_type(scores["rmd"].to_numpy())
reveal_type(scores["label_name"].to_pylist())
reveal_type(scores.to_pandas())
reveal_type(scores["rmd"].is_valid())
reveal_type(scores[scores.rmd > 3].join({"sample_id": [0]}))
reveal_type(scores.rmd)
reveal_type(scores[0])
reveal_type(scores.plot("pairs"))
widget = scores[["a.png"]].review(order="hardest")
reveal_type(widget.marks)
widget.observe(lambda change: print(change.new), names="marks")
ds.score(np.zeros((2, 2)), [0, 1], marks=widget.marks)
scores.plot("hist")
error: ds.errors.DifficultyError
ds.score([[0.0]], [1], shrinkage="lw")
ds.score_dataset("photos", splits="train")
"""

PANDAS = """
class DataFrame:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
"""

OTHERS_UNREAD = """
[mypy]
[mypy-torch.*,pyarrow.*,pydantic.*,cyclopts.*,scipy.*]
follow_imports = skip
"""
"""No type of theirs is shown to the user, and reading them takes half a minute."""


def test_importing_the_package_loads_no_other_package() -> None:
    program = (
        "import json, sys; before = set(sys.modules); import difficulty_service; dir("
        "difficulty_service); print(json.dumps(list(set(sys.modules) - before)))"
    )

    output = subprocess.check_output([sys.executable, "-c", program], text=True)  # noqa: S603

    loaded = {name.partition(".")[0] for name in json.loads(output)}
    assert loaded - sys.stdlib_module_names == {"difficulty_service"}


def test_every_public_name_is_loaded_completed_and_has_a_home() -> None:
    analyses = [path for each in own_analyses().values() for path in each.functions]
    functions = {path.partition(":")[2] for path in analyses}
    assert set(ds.__all__) == {*HOMES, *functions, "errors", "__version__"}
    assert set(ds.__all__) <= set(dir(ds))
    assert all(getattr(ds, name) is getattr(ds, name) for name in ds.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reveiw'"):
        ds.reveiw  # noqa: B018 # type: ignore[attr-defined]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An environment in which a checkout of the project is installed as editable.

    What it needs is taken from the environment of the tests.
    """
    checkout, environment = tmp_path / "checkout", tmp_path / "environment"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for name in ("difficulty_service", "trainer", "api"):
        ignored = shutil.ignore_patterns("__pycache__", "static", "*.safetensors")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    places = {"base": environment, "platbase": environment}
    site = Path(sysconfig.get_path("purelib", "venv", places))
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    subprocess.run(  # noqa: S603 - our own files
        [*pip, "--no-deps", "--no-build-isolation", "--no-index", "--editable", checkout],
        check=True,
    )
    return python


@pytest.mark.long
def test_a_strict_checker_finds_the_names_and_their_types_in_an_editable_installation(
    python: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / "stubs" / "pandas").mkdir(parents=True)
    (folder / "stubs" / "pandas" / "__init__.pyi").write_text(PANDAS)
    (folder / "user.py").write_text(USER_CODE)
    (folder / "mypy.ini").write_text(OTHERS_UNREAD)
    command = [sys.executable, "-m", "mypy", "--strict", "user.py"]

    run = subprocess.run(  # noqa: S603
        [*command, "--python-executable", python, "--cache-dir", folder / "cache"],
        cwd=folder,
        env={"MYPYPATH": str(folder / "stubs")},
        check=False,
        capture_output=True,
        text=True,
    )

    lines = run.stdout.splitlines()
    revealed = [line.partition('"')[2].rpartition('"')[0] for line in lines]
    assert revealed[0] == "difficulty_service.interface.scores.Scores"
    assert revealed[1].startswith("numpy.ndarray")
    assert "float" in revealed[2]
    assert revealed[3:5] == [revealed[0], "str"]
    assert revealed[5].startswith("numpy.ndarray")
    assert revealed[6:9] == ["list[Any]", "pandas.DataFrame", "Any"]
    assert revealed[9] == revealed[0]
    assert revealed[10].startswith("numpy.ndarray")
    assert revealed[11:14] == ["dict[str, Any]", "matplotlib.axes._axes.Axes", "pandas.DataFrame"]
    assert 'Argument 1 to "plot" of "Scores" has incompatible type' in run.stdout
    assert 'Argument "shrinkage" to "score" has incompatible type' in run.stdout
    assert '"splits"' in run.stdout
    assert "Found 3 errors" in run.stdout


def test_no_folder_is_called_as_what_the_package_offers() -> None:
    # Once it is imported, the folder would stand in the package in place of the function.
    folders = {each.name for each in pkgutil.iter_modules(ds.__path__)}

    assert folders.isdisjoint(ds.__all__)
