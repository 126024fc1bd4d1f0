"""Writes a cleaned dataset: a list of samples as CSV or Parquet, or class folders of images.

A list is a table that can be scored like any other dataset. Boxes of objects are written in the
format that they were read in.
"""

import fnmatch
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.errors import CleaningError, DatasetError, Setting
from difficulty_service.base.files import filling, replacing
from difficulty_service.base.tables import csv_writer, parquet_writer
from difficulty_service.base.wording import count_of, list_names
from difficulty_service.cleaning.class_folders import FolderNames, write_class_folders
from difficulty_service.cleaning.decisions import LISTED, Decisions
from difficulty_service.datasets.folder_tree import DROPPED_FILE, SAMPLES_FILE
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.labels import read_otherwise
from difficulty_service.datasets.sample import Content, Revise, Revision
from difficulty_service.datasets.storage import is_uri, open_file, resolve
from difficulty_service.pages.stored_images import ImageSource, MissingImages, StoredImage
from difficulty_service.scores.provenance import Provenance, TagSource

ANNOTATIONS = (".json", ".xml")
"""Extensions of a single file of annotations, which only boxes of objects are written into."""

MISPLACED_FILE = "misplaced.csv"
"""List of the misplaced boxes, in or beside a dataset of boxes."""

OTHER_FILES = (".jsonl", ".ndjson", ".tsv", ".txt", ".xls", ".xlsx", ".tar", ".zip")
"""Extensions of files that are not written, so that none of them becomes the name of a folder."""


@dataclass(frozen=True)
class Cleaned:
    """What was written.

    Attributes:
        dropped_file: List of the other samples, which may be none.
        has_images: Whether the cleaned dataset has images or their paths and can be scored.
        num_misplaced: Number of misplaced boxes.
        misplaced_file: List of them; None where there are none, or where a list is written.
    """

    num_kept: int
    num_others: int
    dropped_file: Path
    has_images: bool
    warnings: tuple[str, ...]
    num_misplaced: int = 0
    misplaced_file: Path | None = None


def is_list(out: Path) -> bool:
    """Whether a cleaned dataset at this path is a list; otherwise it is a folder of images."""
    extension = out.suffix.lower()
    if extension in OTHER_FILES and not out.is_dir():
        raise CleaningError(
            f"{out} has an unsupported format",
            "end the name in .csv or .parquet for a list; any other name is a folder of images",
            parameter="out",
        )
    return extension in (".csv", ".parquet")


def tags_to_write(out: Path, scores: Provenance, table: str | None = None) -> TagSource | None:
    """The tags that decisions are written into; None where the scores are not of tags.

    Args:
        table: Where their table is; None for where the scores say that it is.

    Raises:
        CleaningError: The result has another format, or the table is not known or not there.
    """
    tags = scores.tags
    if tags is None:
        return None
    location = tags.table if table is None else table
    if location is None:
        raise CleaningError(
            "the tags were given in memory, so there is no table to write",
            "score them from a table, or name it as ",
            Setting("images", "TABLE"),
        )
    if not is_uri(location) and not Path(location).exists():
        raise CleaningError(
            f"there is no table of tags at {location}", "name it as ", Setting("images", "TABLE")
        )
    suffix = Path(location).suffix
    if out.suffix.lower() != suffix.lower():
        raise CleaningError(
            f"{out} differs in format from {location}, whose format cleaned tags keep",
            f"end the name in {suffix}",
            parameter="out",
        )
    return tags.model_copy(update={"table": location})


def is_annotations(out: Path) -> bool:
    """Whether a cleaned dataset at this path is a single file of annotations."""
    return out.suffix.lower() in ANNOTATIONS and not out.is_dir()


def write_list(out: Path, decisions: Decisions, source: ImageSource | None) -> Cleaned:
    """Writes the kept samples as a list, and beside it a list of the others."""
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
    dropped_file = out.with_suffix(f".dropped{out.suffix}")
    others = _with_problems(decisions, problems)
    write_table(others, dropped_file)
    written = _without(kept, problems)
    warnings = (
        *problems.warnings(),
        *_warn_of_names(written),
        *_warn_of_losses(kept, written),
    )
    return Cleaned(len(written), len(others), dropped_file, source is not None, warnings)


def write_folder(out: Path, decisions: Decisions, source: ImageSource, *, link: bool) -> Cleaned:
    """Writes the images of the kept samples into one folder per class.

    The folder also gets `samples.csv`, with the path of each sample, and `dropped.csv`.
    """
    if source.is_text:
        raise CleaningError(
            "texts have no files to put into a folder",
            "end the name in .parquet or .csv",
            parameter="out",
        )
    kept, problems = decisions.kept(), MissingImages()
    names = FolderNames(kept)
    with filling(out) as folder:
        images = source.images(kept["sample_id"].to_pylist(), problems.add)
        written = write_class_folders(folder, names, images, problems.add, link=link)
        rows = _without(kept, problems)
        write_table(_with_texts(rows, "path", written.paths), folder / SAMPLES_FILE)
        others = _with_problems(decisions, problems)
        write_table(others, folder / DROPPED_FILE)
    warnings = [
        f"class {label!r} is in the folder {renamed!r}"
        for label, renamed in names.renamed_classes().items()
    ]
    if written.num_copied:
        warnings.append(
            f"{written.num_copied:,} images have no file of their own and are copied, not linked"
        )
    warnings += [*problems.warnings(), *_warn_of_losses(kept, rows)]
    return Cleaned(
        num_kept=len(rows),
        num_others=len(others),
        dropped_file=out / DROPPED_FILE,
        has_images=True,
        warnings=tuple(warnings),
    )


def write_revision(
    out: Path, decisions: Decisions, revise: Revise, *, link: bool, single: bool = False
) -> Cleaned:
    """Writes the whole dataset in its own format, or into a single file the annotations alone.

    A dataset that is a `single` file becomes one.

    All that nobody decided about stays as it is, also what has no scores. A folder also gets
    `dropped.csv`, a file has a list of that name beside it; so do misplaced boxes, which stay
    where they are, have `misplaced.csv`.
    """
    table = decisions.table
    changes = {
        sample_id: label if reason is None else None
        for sample_id, label, before, reason in zip(
            *(
                table[name].to_pylist()
                for name in ("sample_id", "label", "original_label", "reason")
            ),
            strict=True,
        )
        if reason is not None or label != before
    }
    revision, others = revise(changes), decisions.dropped()
    warnings = [*revision.warnings]
    if revision.unknown:
        warnings.append(
            f"{count_of(len(revision.unknown), 'sample')} cannot be changed, because the dataset "
            f"no longer has it: {list_names(revision.unknown, LISTED)}"
        )
    is_file = single or is_annotations(out)
    misplaced = decisions.misplaced()
    lists = {DROPPED_FILE: others, **({MISPLACED_FILE: misplaced} if len(misplaced) else {})}
    if is_file:
        places = {name: out.with_suffix(f".{name}") for name in lists}
        _write_single(out, revision)
        for name, path in places.items():
            write_table(lists[name], path)
    else:
        places = {name: out / name for name in lists}
        _refuse_inside(out, revision)
        with filling(out) as folder:
            warnings += _write_files(folder, revision, link=link)
            for name, rows in lists.items():
                write_table(rows, folder / name)
    return Cleaned(
        num_kept=len(decisions.kept()),
        num_others=len(others),
        dropped_file=places[DROPPED_FILE],
        has_images=not is_file,
        warnings=tuple(warnings),
        num_misplaced=len(misplaced),
        misplaced_file=places.get(MISPLACED_FILE),
    )


def _write_single(out: Path, revision: Revision) -> None:
    ending = out.suffix.lower()
    files = [name for name in revision.changed if name.lower().endswith(ending)]
    if not revision.is_one_file or len(files) != 1:
        raise CleaningError(
            f"{out} is one file, but the dataset keeps its boxes in several",
            "name a folder",
            parameter="out",
        )
    with replacing(out) as temporary:
        _write_content(temporary, revision.changed[files[0]])


def _write_content(path: Path, content: Content) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)


def _refuse_inside(out: Path, revision: Revision) -> None:
    root = revision.root
    if root.is_local and out.resolve().is_relative_to(Path(root.path).resolve()):
        raise CleaningError(
            f"{out} is inside the dataset {root.path}, which must not change",
            "choose a path outside of it",
            parameter="out",
        )


def _write_files(folder: Path, revision: Revision, *, link: bool) -> list[str]:
    """Writes all files of a dataset; the images may be links. Says what could not be copied."""
    problems = list[str]()
    for name in revision.others:
        place, target = revision.root.join(name), folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if link and place.is_local and has_image_extension(name):
            target.symlink_to(Path(place.path).resolve())
            continue
        try:
            with open_file(place) as file, target.open("wb") as copy:
                shutil.copyfileobj(file, copy)
        except OSError as error:
            problems.append(f"{name} ({error.strerror or error})")
    for name, data in revision.changed.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _write_content(folder / name, data)
    if not problems:
        return []
    files = count_of(len(problems), "file")
    return [f"{files} cannot be copied: {list_names(problems, LISTED)}"]


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


def _warn_of_names(written: pa.Table) -> Sequence[str]:
    if not len(written):
        return ()
    changed = read_otherwise(written["label"].to_pylist())
    if not changed:
        return ()
    return (
        f"class names such as {changed[0]!r} change when a list is read; "
        "rename them, or name a folder as the output",
    )


def _warn_of_losses(kept: pa.Table, written: pa.Table) -> list[str]:
    """Sentences about classes whose every image is missing."""
    before, after = (Counter(rows["label"].to_pylist()) for rows in (kept, written))
    return [f"class {name!r} has no sample that can be read" for name in before if not after[name]]


def check_output(out: Path, inputs: Sequence[Path], location: str | None) -> None:
    """Refuses to write over a file that is read, or into the dataset."""
    real = out.resolve()
    if any(real == each.resolve() for each in inputs):
        raise CleaningError(
            f"{out} would be overwritten, but is read", "choose another path", parameter="out"
        )
    if location is not None and _is_in_dataset(real, location):
        raise CleaningError(
            f"{out} is inside the dataset {location}, which must not change",
            "choose a path outside of it",
            parameter="out",
        )


def check_new_folder(out: Path) -> None:
    """Refuses a folder that holds something already."""
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


BYTES_PER_GROUP = 64 << 20
"""Encoded bytes of the images after which a row group is written."""

ROWS_PER_GROUP = 1 << 14
"""Rows after which a row group is written."""

IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""An image inside the table, or the path of its file."""

Cell = dict[str, bytes | str | None]
Images = Iterable[tuple[str, StoredImage]]


def write_table(table: pa.Table, path: Path) -> None:
    """Writes a table as Parquet, or as CSV where the name ends in `.csv`."""
    write_rows = csv_writer if path.suffix.lower() == ".csv" else parquet_writer
    with replacing(path) as temporary, write_rows(temporary, table.schema) as write:
        write(table)


def write_text_list(path: Path, rows: pa.Table, texts: Images) -> None:
    """Writes a CSV or Parquet file with a column `text`."""
    text_of = {sample_id: text.read().decode() for sample_id, text in texts}
    write_table(_with_texts(rows, "text", text_of), path)


def write_csv_list(
    path: Path, rows: pa.Table, images: Images, on_problem: Callable[[str, str], None]
) -> None:
    """Writes a CSV file with a column `path` of the images that have a file of their own.

    Paths of images below the folder of the file are relative to it, others are absolute.
    """
    folder = path.parent.absolute()
    num_inside = 0
    paths: dict[str, str] = {}
    for sample_id, image in images:
        if image.path is None:
            num_inside += 1
            on_problem(
                sample_id, "its image has no file of its own; Parquet or a folder can hold it"
            )
        elif not (text := _path_text(image.path, folder)).isprintable():
            on_problem(sample_id, f"its path {text!r} cannot be written to CSV")
        else:
            paths[sample_id] = text
    if num_inside and not paths:
        raise CleaningError(
            f"{path} would be empty: CSV names files, and no image has a file of its own",
            "end the name in .parquet, or name a folder",
            parameter="out",
        )
    write_table(_with_texts(rows, "path", paths), path)


def _with_texts(rows: pa.Table, name: str, texts: Mapping[str, str]) -> pa.Table:
    """The rows whose samples have a text, with the texts as their second column."""
    ids = rows["sample_id"].to_pylist()
    found = rows.filter(pa.array([sample_id in texts for sample_id in ids], pa.bool_()))
    column = [texts[sample_id] for sample_id in ids if sample_id in texts]
    return found.add_column(1, name, pa.array(column, pa.string()))


def write_parquet_list(
    path: Path, rows: pa.Table, images: Images, on_problem: Callable[[str, str], None]
) -> None:
    """Writes a Parquet file with a column `image`, a few row groups in memory at a time.

    The column holds the path of an image that has a file of its own, and the bytes of any other.
    """
    row_of = {sample_id: row for row, sample_id in enumerate(rows["sample_id"].to_pylist())}
    folder = path.parent.absolute()
    schema = rows.schema.insert(1, pa.field("image", IMAGE_TYPE))

    def cells() -> Iterator[tuple[int, Cell]]:
        for sample_id, image in images:
            text = None if image.path is None else _path_text(image.path, folder)
            if text is not None and any("\ud800" <= each <= "\udfff" for each in text):
                on_problem(sample_id, f"its path {text!r} is not valid Unicode")
                continue
            cell = {"bytes": image.data if text is None else None, "path": text}
            yield row_of[sample_id], cell

    with replacing(path) as temporary, parquet_writer(temporary, schema) as write:
        for group in _groups(cells()):
            numbers, structs = zip(*group, strict=True)
            column = pa.array(structs, IMAGE_TYPE)
            write(rows.take(pa.array(numbers)).add_column(1, schema.field(1), column))


def _groups(cells: Iterator[tuple[int, Cell]]) -> Iterator[list[tuple[int, Cell]]]:
    """The cells in groups of limited size."""
    group: list[tuple[int, Cell]] = []
    size = 0
    for row, cell in cells:
        group.append((row, cell))
        data = cell["bytes"]
        size += len(data) if isinstance(data, bytes) else 0
        if size >= BYTES_PER_GROUP or len(group) >= ROWS_PER_GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _path_text(path: Path, folder: Path) -> str:
    """A path relative to a folder if it is below it, else absolute."""
    return os.fspath(path.relative_to(folder) if path.is_relative_to(folder) else path)
