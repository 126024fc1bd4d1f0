"""Checks of a path before anything is written to it."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path

from difficulty_service.datasets.storage import resolve
from difficulty_service.errors import CleaningError, DatasetError


def check_output(out: Path, inputs: Sequence[Path], location: str | None) -> None:
    """Refuses to write over a file that is read, or into the dataset.

    Args:
        out: File or folder to write.
        inputs: Files that are read.
        location: Location of the dataset: path, URI or glob; None if there is none.

    Raises:
        CleaningError: Something would be written over, or the dataset would change.
    """
    real = out.resolve()
    if any(real == each.resolve() for each in inputs):
        raise CleaningError(
            f"{out} would be written over, but is read", "choose another path", parameter="out"
        )
    if location is not None and _is_in_dataset(real, location):
        raise CleaningError(
            f"{out} is inside the dataset {location}, which must not change",
            "choose a path outside of it",
            parameter="out",
        )


def check_new_folder(out: Path) -> None:
    """Refuses a folder that holds something already.

    Raises:
        CleaningError: There is a file, or a folder that is not empty.
    """
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        what = "is not empty" if out.is_dir() else "is not a folder"
        raise CleaningError(f"{out} exists and {what}", "choose a new folder", parameter="out")


def _is_in_dataset(real: Path, location: str) -> bool:
    try:
        place = resolve(location)
    except DatasetError:
        return False
    if not place.is_local:
        return False
    dataset = Path(place.path)
    return real.is_relative_to(dataset.resolve()) or fnmatch.fnmatchcase(str(real), place.path)
