"""The script with which the Makefile installs: uv where it can be had, pip otherwise.

Nothing is downloaded: `uv` is a package made here, which writes down how it was called.
"""

import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / ".ci" / "install.py"
UV = """#!{interpreter}
env | grep ^UV_ | sort > {record}
echo "$@" >> {record}
exit {code}
"""


def make_wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    """Writes version 1.0 of a package."""
    facts = f"{name}-1.0.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = files | {
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{facts}/WHEEL": wheel,
    }
    files[f"{facts}/RECORD"] = "".join(f"{each},,\n" for each in [*files, f"{facts}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16  # a file that may be executed
            archive.writestr(entry, text)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a package `small`."""
    folder = tmp_path / "packages"
    folder.mkdir()
    make_wheel(folder, "small", {"small.py": "here = True\n"})
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment that has nothing but pip."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    places = {"base": environment, "platbase": environment}
    site = Path(sysconfig.get_path("purelib", "venv", places))
    for part in Path(sysconfig.get_path("purelib")).glob("pip*"):  # the package and its facts
        (site / part.name).symlink_to(part)
    return environment / "bin" / "python"


def install(python: Path, packages: Path, **settings: str) -> None:
    """Installs `small`, with further settings of pip."""
    folder = packages.parent
    (folder / "constraints.txt").write_text("uv==1.0\nsmall==1.0\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    subprocess.run(  # noqa: S603 - our own script
        [python, SCRIPT, "--compile-bytecode", "-c", "constraints.txt", "small"],
        cwd=folder,
        env=kept
        | {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(packages),
            "PIP_INDEX_URL": (folder / "nothing").as_uri(),
        }
        | settings,
        check=True,
    )


def has_small(python: Path) -> bool:
    """Whether `small` can be imported in an environment."""
    return not subprocess.run([python, "-c", "import small"], check=False).returncode  # noqa: S603


def add_uv(packages: Path, code: int, interpreter: str = "/bin/sh") -> Path:
    """Adds a uv that ends with a code; returns the file in which it writes down its call."""
    record = packages.parent / "record"
    text = UV.format(interpreter=interpreter, record=record, code=code)
    make_wheel(packages, "uv", {"uv-1.0.data/scripts/uv": text})
    return record


@pytest.mark.slow
def test_uv_is_told_where_pip_finds_packages_and_leaves_nothing_behind(
    python: Path, packages: Path
) -> None:
    record = add_uv(packages, 0)

    install(python, packages)

    lines = record.read_text().splitlines()
    assert f"UV_DEFAULT_INDEX={(packages.parent / 'nothing').as_uri()}" in lines
    assert f"UV_FIND_LINKS={packages}" in lines
    assert lines[-1] == (
        f"pip install --python {python} --compile-bytecode -c constraints.txt small"
    )
    assert not has_small(python)  # pip was not asked
    assert {each.name for each in python.parent.parent.iterdir()} <= {
        *("bin", "include", "lib", "lib64", "pyvenv.cfg")
    }


@pytest.mark.slow
def test_pip_installs_where_uv_fails(python: Path, packages: Path) -> None:
    record = add_uv(packages, 1)

    install(python, packages)

    assert record.exists()
    assert has_small(python)


@pytest.mark.slow
def test_pip_installs_where_uv_cannot_be_run(python: Path, packages: Path) -> None:
    record = add_uv(packages, 0, interpreter="/missing/shell")

    install(python, packages)

    assert not record.exists()
    assert has_small(python)


@pytest.mark.slow
def test_pip_installs_where_there_is_no_uv(python: Path, packages: Path) -> None:
    install(python, packages)

    assert has_small(python)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["PIP_NO_INDEX", "PIP_PRE"])
def test_pip_installs_where_it_has_a_setting_that_uv_is_not_told(
    python: Path, packages: Path, setting: str
) -> None:
    record = add_uv(packages, 0)

    install(python, packages, **{setting: "1"})

    assert not record.exists()
    assert has_small(python)
