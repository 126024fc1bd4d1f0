"""Seconds per 100,000 files to list class folders, beside torchvision's ImageFolder.

A preview, as `difficulty score --dry-run` has it, is measured for a folder, a zip and a tar.

Run: python -m benchmarks.listing [FILES]
"""

import io
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from torchvision.datasets import ImageFolder

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.preview import preview
from difficulty_service.datasets.sample import DatasetOptions

NUM_CLASSES = 100
REPEATS = 3


def make_files(root: Path, num_files: int) -> None:
    """Fills `root` with class folders of tiny files."""
    for label in range(NUM_CLASSES):
        (root / f"class{label:03}").mkdir()
    for number in range(num_files):
        (root / f"class{number % NUM_CLASSES:03}" / f"{number:08}.jpg").write_bytes(b"x")


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


def seconds(work: Callable[[], object]) -> float:
    """Best of a few runs, as other work on the computer can only slow one down."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Makes the files, times both, prints one line each."""
    num_files = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        make_files(Path(folder), num_files)
        names = [str(path.relative_to(folder)) for path in Path(folder).rglob("*.jpg")]
        places = [Path(folder), *pack(names, Path(other))]
        per = 100_000 / num_files
        ours = seconds(lambda: open_dataset(folder, DatasetOptions())) * per
        theirs = seconds(lambda: ImageFolder(folder)) * per
        shown = {place.suffix or "folder": seconds(lambda: show(place)) * per for place in places}  # noqa: B023
    print(f"{num_files:,} files in {NUM_CLASSES} classes, seconds per 100,000, best of {REPEATS}")
    print(f"difficulty, with ids, sizes and fingerprint  {ours:6.2f}")
    print(f"torchvision ImageFolder, paths only          {theirs:6.2f}")
    for kind, taken in shown.items():
        print(f"a dry run of a {kind.strip('.'):<6}                        {taken:6.2f}")


if __name__ == "__main__":
    main()
