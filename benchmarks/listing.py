"""Seconds per 100,000 files to list class folders, beside torchvision's ImageFolder.

A preview, as `difficulty score --dry-run` has it, is measured for a folder, a zip and a tar. Core
seconds do not count how long the process waits on a busy machine.

Run: python -m benchmarks.listing [FILES] [--folder]
"""

import argparse
import io
import os
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torchvision.datasets import ImageFolder

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.preview import preview
from difficulty_service.datasets.sample import DatasetOptions

NUM_CLASSES = 100
REPEATS = 3


def make_files(root: Path, num_files: int) -> None:
    """Fills `root` with class folders of tiny files, those of a class being links to one."""
    for label in range(NUM_CLASSES):
        folder = root / f"class{label:03}"
        folder.mkdir()
        first, *others = (
            folder / f"{number:08}.jpg" for number in range(label, num_files, NUM_CLASSES)
        )
        first.write_bytes(b"x")
        for other in others:
            os.link(first, other)


def pack(names: list[str], folder: Path) -> tuple[Path, Path]:
    """Writes a zip and a tar with members of these names, each of a single byte."""
    with (
        zipfile.ZipFile(folder / "photos.zip", "w") as zipped,
        tarfile.open(folder / "photos.tar", "w") as tarred,
    ):
        for name in names:
            zipped.writestr(name, b"x")
            header = tarfile.TarInfo(name)
            header.size = 1
            tarred.addfile(header, io.BytesIO(b"x"))
    return folder / "photos.zip", folder / "photos.tar"


def show(location: Path) -> None:
    """What a dry run does."""
    preview(open_dataset(str(location), DatasetOptions()), None)


def measure(what: str, num_files: int, work: Callable[[], object]) -> None:
    """Prints the best of a few runs, as other work on the computer can only slow one down."""
    times, core_times = [], []
    for _ in range(REPEATS):
        start, core_start = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - start)
        core_times.append(time.process_time() - core_start)
    per = 100_000 / num_files
    print(f"{what:44} {min(times) * per:6.2f} {min(core_times) * per:6.2f}", flush=True)


def main() -> None:
    """Makes the files, times both, prints one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=int, nargs="?", default=100_000)
    parser.add_argument("--folder", action="store_true", help="leave out the zip and the tar")
    options = parser.parse_args()
    num_files = options.files
    print(f"{num_files:,} files in {NUM_CLASSES} classes, best of {REPEATS}, per 100,000 files")
    print(f"{'':44} {'s':>6} {'core-s':>6}")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        make_files(Path(folder), num_files)
        ours = "difficulty, with ids, sizes and fingerprint"
        measure(ours, num_files, lambda: open_dataset(folder, DatasetOptions()))
        measure("torchvision ImageFolder, paths only", num_files, lambda: ImageFolder(folder))
        places = [Path(folder)]
        if not options.folder:
            names = [str(path.relative_to(folder)) for path in Path(folder).rglob("*.jpg")]
            places += pack(names, Path(other))
        for place in places:
            kind = place.suffix.strip(".") or "folder"
            measure(f"a dry run of a {kind}", num_files, partial(show, place))


if __name__ == "__main__":
    main()
