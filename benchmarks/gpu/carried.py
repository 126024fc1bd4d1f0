"""Carries what the measurements need to a machine with a GPU and PyTorch, but without a network.

Here, with a network:

    python -m benchmarks.gpu.carried pack [--python 3.12] [--megabytes 64] [--out build/carried]

There, where Python has PyTorch, torchvision, timm, transformers, NumPy and SciPy:

    python3 -m benchmarks.gpu.carried run build/carried [--minutes 8 ...]

What `run` is given beside the folder goes to `python -m benchmarks.gpu`. The project's own files
travel, too, and count towards the size. A package that does not fit is left out and named, and so
is the part that needs it. Nothing here imports a package.
"""

import argparse
import importlib.util
import io
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NEEDED_THERE = ("torch", "torchvision", "timm", "transformers", "numpy", "scipy")
"""Modules that are too large to be carried."""

PACKAGES = (
    *("threadpoolctl", "xxhash", "psutil", "accelerate"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions"),
    *("cyclopts", "attrs", "docstring-parser", "rich-rst", "docutils", "rich", "pygments"),
    *("markdown-it-py", "mdurl", "pytest", "pluggy", "iniconfig", "pytest-timeout"),
    *("pytorch-ood", "open-clip-torch", "ftfy", "wcwidth"),
    *("pyarrow", "faiss-cpu"),
)
"""Packages in the order in which they are taken, the most necessary ones first."""

UNUSED = (
    *("*/tests/*", "*/include/*", "*/testing/*", "*.pyx", "*.pxd", "*.pxi", "*.cc", "*.h"),
    *("*/locale/*", "docutils/writers/*", "*.data/*"),
    *("pyarrow/*flight*", "pyarrow/*encryption*", "pyarrow/*gandiva*"),
    *("pyarrow/*s3*", "pyarrow/*gcs*", "pyarrow/*azure*", "pyarrow/*orc*", "pyarrow/*hdfs*"),
    # The same library is there by the three names of links; its short name is that of compilers.
    *("pyarrow/libarrow*.so", "pyarrow/libparquet*.so", "pyarrow/*.so.*.*"),
)
"""Files of packages that no measurement loads. The tests say that nothing else is missing."""

FILTERS = ({"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 26})
MEGABYTE = 1 << 20


def download(python: str, folder: Path) -> dict[str, Path]:
    """The wheels of all packages for Linux on x86-64, in the versions of constraints.txt."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    version = [f"--python-version={python}", "--only-binary=:all:", "--implementation=cp"]
    constraints = f"--constraint={ROOT / 'constraints.txt'}"
    asked = [*command, str(folder), *version, *platforms, constraints, *PACKAGES]
    subprocess.run(asked, check=True)  # noqa: S603
    wheels = {each.name.split("-")[0].replace("_", "-"): each for each in folder.glob("*.whl")}
    return {name: wheels[name] for name in PACKAGES}


def used_files(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel that measurements need, by their paths."""

    def is_used(path: str) -> bool:
        return not path.endswith("/") and not any(fnmatch(path, pattern) for pattern in UNUSED)

    with zipfile.ZipFile(wheel) as archive:
        return {path: archive.read(path) for path in archive.namelist() if is_used(path)}


def pack(name: str, wheel: Path, folder: Path) -> Path:
    """An archive in a folder with the files of a package that measurements need."""
    archive = folder / f"{name}.tar.xz"
    write_archive(archive, used_files(wheel))
    return archive


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    """Writes files to an archive that `tarfile` of any Python reads."""
    with (
        lzma.open(path, "wb", filters=[dict(each) for each in FILTERS]) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))


def take_fitting(archives: Iterable[Path], most: int) -> Iterator[tuple[Path, int, bool]]:
    """Each archive, its bytes, and whether it fits beside those before; deletes it if not."""
    taken = 0
    for archive in archives:
        size = archive.stat().st_size
        fits = taken + size <= most
        if fits:
            taken += size
        else:
            archive.unlink()
        yield archive, size, fits


def size_of_project() -> int:
    """Bytes of the files of the project, which travel as they are."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S603
    files = [ROOT / name.decode() for name in listed.split(b"\0") if name]
    return sum(file.lstat().st_size for file in files if file.exists())


def run_packing(options: argparse.Namespace) -> None:
    """Writes the archives, and prints what is in them and what is not."""
    project = size_of_project()
    most = int(options.megabytes * MEGABYTE) - project
    print(f"{project / MEGABYTE:6.1f} MiB the project", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheels = download(options.python, Path(folder))
        archives = (pack(name, wheel, options.out) for name, wheel in wheels.items())
        total = project
        for archive, size, fits in take_fitting(archives, most):
            total += size * fits
            print(f"{size / MEGABYTE:6.1f} MiB {archive}{'' if fits else ': left out'}", flush=True)
    print(f"{total / MEGABYTE:6.1f} MiB in all, of {options.megabytes:g}")


def write_metadata(folder: Path) -> None:
    """Writes what an installation tells of the project: its version and its entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    own.mkdir()
    fields = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (own / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in groups.items()
    ]
    (own / "entry_points.txt").write_text("\n".join(lines))


def run_measurements(carried: Path, arguments: Sequence[str]) -> int:
    """Unpacks the archives, and runs the measurements with them; gives their exit status."""
    missing = [name for name in NEEDED_THERE if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.executable} has no {', '.join(missing)}: too large to be carried")
    with tempfile.TemporaryDirectory(prefix="difficulty-carried-") as folder:
        for archive in sorted(carried.glob("*.tar.xz")):
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
        write_metadata(Path(folder))
        known = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([folder, str(ROOT), *([known] if known else [])])
        command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603


def main(arguments: Sequence[str] | None = None) -> None:
    """Packs, or runs with what is packed."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    packing = commands.add_parser("pack")
    packing.add_argument("--python", default="3.12", help="version of Python there")
    packing.add_argument("--megabytes", type=float, default=64, help="MiB, the project included")
    packing.add_argument("--out", type=Path, default=Path("build/carried"))
    running = commands.add_parser("run")
    running.add_argument("carried", type=Path)
    options, others = parser.parse_known_args(arguments)
    if options.command == "run":
        sys.exit(run_measurements(options.carried, others))
    if others:
        parser.error(f"unknown: {' '.join(others)}")
    run_packing(options)


if __name__ == "__main__":
    main()
