"""Writes lists of samples as CSV or Parquet tables that can be scored like any other dataset."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import parquet_writer, write_parquet
from difficulty_service.datasets.labels import MAX_LABEL, is_text
from difficulty_service.review.stored_images import StoredImage

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
    with replacing(path) as temporary:
        if path.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, temporary)
        else:
            write_parquet(temporary, table)


def write_text_list(path: Path, rows: pa.Table, texts: Images) -> None:
    """Writes a CSV or Parquet file with a column `text`.

    Args:
        path: File to write.
        rows: Columns of the list, with sample_id.
        texts: UTF-8 texts by the ids of their samples; a row without one is left out.
    """
    text_of = {sample_id: text.read().decode() for sample_id, text in texts}
    ids = rows["sample_id"].to_pylist()
    found = rows.filter(pa.array([sample_id in text_of for sample_id in ids], pa.bool_()))
    column = pa.array([text_of[each] for each in found["sample_id"].to_pylist()], pa.string())
    write_table(found.add_column(1, "text", column), path)


def write_csv_list(
    path: Path, rows: pa.Table, images: Images, on_problem: Callable[[str, str], None]
) -> None:
    """Writes a CSV file with a column `path` of the images that have a file of their own.

    Args:
        path: CSV file to write. Paths of images below its folder are relative to it, others are
            absolute.
        rows: Columns of the list, with sample_id.
        images: Images by the ids of their samples; a row without one is left out.
        on_problem: Called with the id and the reason where CSV cannot refer to an image.

    Raises:
        CleaningError: There are images, and none of them has a file of its own.
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
    found = rows.filter(
        pa.array([sample_id in paths for sample_id in rows["sample_id"].to_pylist()])
    )
    column = pa.array(
        [paths[sample_id] for sample_id in found["sample_id"].to_pylist()], pa.string()
    )
    write_table(found.add_column(1, "path", column), path)


def write_parquet_list(
    path: Path, rows: pa.Table, images: Images, on_problem: Callable[[str, str], None]
) -> None:
    """Writes a Parquet file with a column `image`, a few row groups in memory at a time.

    The column holds the path of an image that has a file of its own, and the bytes of any other.

    Args:
        path: Parquet file to write; paths are as for `write_csv_list`.
        rows: Columns of the list, with sample_id.
        images: Images by the ids of their samples; a row without one is left out.
        on_problem: Called with the id and the reason where Parquet cannot refer to an image.
    """
    row_of = {sample_id: row for row, sample_id in enumerate(rows["sample_id"].to_pylist())}
    folder = path.parent.absolute()
    schema = rows.schema.insert(1, pa.field("image", IMAGE_TYPE))

    def cells() -> Iterator[tuple[int, Cell]]:
        for sample_id, image in images:
            text = None if image.path is None else _path_text(image.path, folder)
            if text is not None and not _is_unicode(text):
                on_problem(sample_id, f"its path {text!r} is not valid Unicode")
                continue
            cell = {"bytes": image.data if text is None else None, "path": text}
            yield row_of[sample_id], cell

    with (
        replacing(path) as temporary,
        parquet_writer(temporary, schema) as write,
    ):
        for group in _groups(cells()):
            numbers, structs = zip(*group, strict=True)
            column = pa.array(structs, IMAGE_TYPE)
            write(rows.take(pa.array(numbers)).add_column(1, schema.field(1), column))


def changed_names(path: Path, labels: list[str]) -> list[str]:
    """Class names that a CSV file turns into others, because they look like another type.

    Args:
        path: The CSV file.
        labels: Its column `label`.
    """
    multiline = pyarrow.csv.ParseOptions(newlines_in_values=True)
    read = pyarrow.csv.read_csv(path, parse_options=multiline)["label"]
    if is_text(read.type):
        return []
    if not pa.types.is_integer(read.type):
        return sorted(set(labels))
    pairs = set(zip(labels, read.to_pylist(), strict=True))
    return sorted(
        name for name, number in pairs if name != str(number) or not 0 <= number <= MAX_LABEL
    )


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


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
