"""Writes a cleaned dataset: a list of samples as CSV or Parquet, or class folders of images.

Checks of a path before anything is written to it.
"""

import fnmatch
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.errors import CleaningError, DatasetError
from difficulty_service.base.files import filling
from difficulty_service.datasets.storage import resolve
from difficulty_service.review.class_folders import FolderNames, write_class_folders
from difficulty_service.review.decisions import Decisions
from difficulty_service.review.sample_lists import (
    changed_names,
    write_csv_list,
    write_parquet_list,
    write_table,
    write_text_list,
)
from difficulty_service.review.stored_images import ImageSource, MissingImages

SAMPLES_FILE = "samples.csv"
DROPPED_FILE = "dropped.csv"

OTHER_FILES = (".json", ".jsonl", ".ndjson", ".tsv", ".txt", ".xls", ".xlsx", ".tar", ".zip")
"""Extensions of files that are not written, so that none of them becomes the name of a folder."""


@dataclass(frozen=True)
class Cleaned:
    """What was written.

    Attributes:
        num_kept: Number of samples in the cleaned dataset.
        dropped_file: File that lists the other samples, each with its reason.
        has_images: Whether the cleaned dataset has images or their paths and can be scored.
        warnings: Warnings, one sentence each.
    """

    num_kept: int
    dropped_file: Path
    has_images: bool
    warnings: tuple[str, ...]


def is_list(out: Path) -> bool:
    """Whether a cleaned dataset at this path is a list; otherwise it is a folder of images.

    Raises:
        CleaningError: The extension is that of a file that is not written.
    """
    extension = out.suffix.lower()
    if extension in OTHER_FILES and not out.is_dir():
        raise CleaningError(
            f"{out} is of a format that is not written",
            "end the name in .csv or .parquet for a list; any other name is a folder of images",
            parameter="out",
        )
    return extension in (".csv", ".parquet")


def dropped_file_of(out: Path) -> Path:
    """File that lists the samples that are not in the cleaned dataset."""
    return out.with_suffix(f".dropped{out.suffix}") if is_list(out) else out / DROPPED_FILE


def write_list(out: Path, decisions: Decisions, source: ImageSource | None) -> Cleaned:
    """Writes the kept samples as a list, and beside it a list of the others.

    Args:
        out: Path of a CSV or Parquet file.
        decisions: What is decided about each sample.
        source: The images; None to write a list without them.
    """
    kept, problems = decisions.kept(), MissingImages()
    if source is None:
        write_table(kept, out)
    else:
        images = source.images(kept["sample_id"].to_pylist(), problems.add)
        if source.is_text:
            write_text_list(out, kept, images)
        else:
            write = write_csv_list if out.suffix.lower() == ".csv" else write_parquet_list
            write(out, kept, images, problems.add)
    dropped_file = dropped_file_of(out)
    write_table(_with_problems(decisions, problems), dropped_file)
    written = _without(kept, problems)
    warnings = [
        *problems.warnings(),
        *_warn_of_names(out, written),
        *_warn_of_losses(kept, written),
    ]
    return Cleaned(len(written), dropped_file, source is not None, tuple(warnings))


def write_folder(out: Path, decisions: Decisions, source: ImageSource, *, link: bool) -> Cleaned:
    """Writes the images of the kept samples into one folder per class.

    The folder also gets `samples.csv`, with the path of each sample, and `dropped.csv`.

    Args:
        out: A folder that does not exist or is empty.
        decisions: What is decided about each sample.
        source: The images.
        link: Whether to link images by their absolute path instead of copying them.
    """
    if source.is_text:
        raise CleaningError(
            "texts have no files, and a folder would hold files",
            "end the name in .parquet or .csv",
            parameter="out",
        )
    kept, problems = decisions.kept(), MissingImages()
    names = FolderNames(kept)
    with filling(out) as folder:
        images = source.images(kept["sample_id"].to_pylist(), problems.add)
        written = write_class_folders(folder, names, images, problems.add, link=link)
        rows = _without(kept, problems)
        paths = pa.array(
            [written.paths[each] for each in rows["sample_id"].to_pylist()], pa.string()
        )
        write_table(rows.add_column(1, "path", paths), folder / SAMPLES_FILE)
        write_table(_with_problems(decisions, problems), folder / DROPPED_FILE)
    warnings = [
        f"class {label!r} is in the folder {renamed!r}"
        for label, renamed in names.renamed_classes().items()
    ]
    if written.num_copied:
        warnings.append(
            f"{written.num_copied:,} images have no file of their own and are copied, not linked"
        )
    warnings += [*problems.warnings(), *_warn_of_losses(kept, rows)]
    return Cleaned(len(rows), out / DROPPED_FILE, has_images=True, warnings=tuple(warnings))


def _without(kept: pa.Table, problems: MissingImages) -> pa.Table:
    return kept.filter(
        pa.array([each not in problems.reasons for each in kept["sample_id"].to_pylist()])
    )


def _with_problems(decisions: Decisions, problems: MissingImages) -> pa.Table:
    """The dropped samples, and after them those that are left out because of their images."""
    kept = decisions.kept()
    columns = (kept["sample_id"].to_pylist(), kept["original_label"].to_pylist())
    rows = [
        (sample_id, label, problems.reasons[sample_id])
        for sample_id, label in zip(*columns, strict=True)
        if sample_id in problems.reasons
    ]
    dropped = decisions.dropped()
    added = [dict(zip(dropped.column_names, row, strict=True)) for row in rows]
    return pa.concat_tables([dropped, pa.Table.from_pylist(added, dropped.schema)])


def _warn_of_names(out: Path, written: pa.Table) -> Sequence[str]:
    if out.suffix.lower() != ".csv" or not len(written):
        return ()
    changed = changed_names(out, written["label"].to_pylist())
    if not changed:
        return ()
    return (
        f"class names such as {changed[0]!r} are read from CSV as numbers or dates, and so change; "
        "write .parquet instead",
    )


def _warn_of_losses(kept: pa.Table, written: pa.Table) -> list[str]:
    """Sentences about classes whose every image is missing."""
    before, after = (Counter(rows["label"].to_pylist()) for rows in (kept, written))
    return [f"class {name!r} has no image that can be read" for name in before if not after[name]]


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
