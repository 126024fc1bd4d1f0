"""Tables with a row for each box: its image, its class and its sides.

Such tables are written by Roboflow, by the tools of TensorFlow and by hand, and are those of many
competitions. The name of a box is the cell of the id column, or its number among the boxes of its
image, counted from 1. A row with an image and nothing else says that the image has no box.
"""

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.base.errors import DatasetError, ImageError, Setting
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.folder_tree import OWN_FILES
from difficulty_service.datasets.image_openers import cell_opener
from difficulty_service.datasets.json_tables import ENDING
from difficulty_service.datasets.labels import find_usual
from difficulty_service.datasets.objects.box_columns import (
    BoxColumns,
    box_columns,
    is_empty,
    meaning_of,
    number_of,
    numbers_of,
)
from difficulty_service.datasets.objects.boxes import (
    BoxedImage,
    Boxes,
    build_boxes,
    frame_of,
    new_names,
)
from difficulty_service.datasets.objects.files import below, find_folder
from difficulty_service.datasets.objects.one_file import LOOKED_AT
from difficulty_service.datasets.objects.table_revision import revised_table
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    location_below,
    open_arrow_file,
    resolve,
)
from difficulty_service.datasets.table import ListedTable, TableRows, list_table
from difficulty_service.datasets.table_columns import IMAGE_NAMES
from difficulty_service.datasets.table_files import (
    LIMITED_EXTENSIONS,
    TABLE_EXTENSIONS,
    read_columns,
)
from difficulty_service.datasets.text_tables import first_cells
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, open_header, read_encoded
from difficulty_service.images.opener import ImageOpener

_TEXTS = (*LIMITED_EXTENSIONS, ".txt", ENDING)

_LOOKED_AT = 20
"""Number of images whose sizes are read where the table has none, to tell what its numbers are."""


def is_box_table(place: StoredPath, image_column: str | None = None) -> bool:
    """Whether a file is a table whose columns are called as those of images and of boxes."""
    names = _names_of(place)
    has_images = image_column in names or bool(find_usual(IMAGE_NAMES, names))
    return has_images and box_columns(names) is not None


def find_box_tables(place: StoredPath, entries: list[Entry]) -> list[StoredPath]:
    """Such tables in a folder that holds them alone, with its images or one folder of these.

    Of JSON, which may be about anything, it is a single one where there is no other table.
    """
    if sum(is_dir for _, is_dir, _ in entries) > 1:
        return []  # these may be classes, which the table says more about
    names = [name for name, is_dir, _ in entries if not is_dir and name not in OWN_FILES]
    places = [place.join(name) for name in names if name.lower().endswith(TABLE_EXTENSIONS)]
    if places:
        return places if all(map(is_box_table, places)) else []
    others = [name for name in names if name.lower().endswith(ENDING)][:LOOKED_AT]
    found = [*filter(is_box_table, map(place.join, others))]
    return found if len(found) == 1 else []


def _names_of(place: StoredPath) -> Sequence[str]:
    name = place.name.lower()
    if name.endswith(".parquet"):
        with suppress(OSError, pa.ArrowException, UnicodeError):
            with open_arrow_file(place) as source:
                schema = pq.ParquetFile(source).schema_arrow
            return [field.name for field in schema if not _holds_bytes(field.type)]
        return ()
    return first_cells(place, place.name) if name.endswith(_TEXTS) else ()


def _holds_bytes(kind: pa.DataType) -> bool:
    """Whether the samples of a column are images in the table itself, which stay what they are."""
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_struct(kind)


@dataclass(frozen=True)
class _Row:
    """A row of a table.

    Attributes:
        table: Number of its file.
        number: Its number in that.
        label: Its class, or why it has none.
    """

    table: int
    number: int
    name: str
    image: int
    label: int | str
    numbers: Sequence[object]


@dataclass(frozen=True)
class _Read:
    """The boxes of tables, each in the place of its row."""

    listed: ListedTable
    boxes: Boxes
    notes: Sequence[str]


def open_box_table(location: str, options: DatasetOptions) -> Dataset:
    """Opens a table, those that match a glob, or those of a folder."""
    read = _read(location, options)
    listing = read.listed.listing
    revise = partial(_revise, location, options)
    notes = [*read.notes, *listing.warnings]
    return build_boxes(location, options, listing.class_names, read.boxes, revise, notes)


def _folder_of(location: str, options: DatasetOptions) -> str:
    """The location of the only table, or of the folder with them, at one or in a folder there."""
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        return location
    root, _, found = find_folder(place, location, find_box_tables)
    inside = below(place, found[0] if len(found) == 1 else root)
    return location_below(location, inside) if inside else location


def _read(location: str, options: DatasetOptions) -> _Read:
    where = _folder_of(location, options)
    columns = _columns_of(where, options)
    listed = list_table(where, replace(options, id_column=None), _also(columns, options))
    boxes = Boxes()
    rows = [*_rows(listed, columns, options, boxes)]
    frames = [boxes.images[row.image].frame for row in rows]
    filled = [not is_empty(row.numbers) for row in rows]
    known = [
        each for each, is_box in zip(zip(rows, frames, strict=True), filled, strict=True) if is_box
    ]
    sizes = _sizes(boxes) if not columns.is_sure else {}
    meaning = meaning_of(
        columns,
        [row.numbers for row, _ in known],
        [frame or sizes.get(row.image) for row, frame in known],
    )
    if meaning.are_shares:
        boxes.images[:] = [replace(image, frame=(1.0, 1.0)) for image in boxes.images]
    for row in rows:
        if is_empty(row.numbers) and isinstance(row.label, str):
            continue  # an image without a box
        boxes.add(row.image, row.name, row.label, meaning.sides(row.numbers), place=row)
    names = ", ".join(map(repr, columns.sides))
    notes = [f"the boxes in {names} are read {meaning.note}"] if meaning.note else []
    if len({*boxes.rows}) == len(boxes.rows):
        notes.append(
            f"each image has one box, in {names}, and the objects in these are the samples; to "
            "read whole images, set the format table"
        )
    return _Read(listed, boxes, notes)


def _columns_of(location: str, options: DatasetOptions) -> BoxColumns:
    for file in find_files(location, options.boundary):
        columns = box_columns(_names_of(file.place))
        if columns is not None:
            return columns
    raise DatasetError(
        f"{location!r} has no columns of boxes",
        "name four columns x_min, y_min, x_max and y_max, or leave out ",
        Setting("format"),
        parameter="format",
    )


def _also(columns: BoxColumns, options: DatasetOptions) -> list[str]:
    return [*columns.names, *filter(None, [options.id_column])]


def _rows(
    listed: ListedTable, columns: BoxColumns, options: DatasetOptions, boxes: Boxes
) -> Iterator[_Row]:
    """The rows of all tables, in order, whose images are added to the boxes."""
    reasons = dict(listed.unlabelled)
    labels = dict(zip(listed.rows.rows.tolist(), listed.listing.labels.tolist(), strict=True))
    numbers = np.array(sorted({*reasons, *labels}), np.int64)
    every = TableRows(listed.rows.tables, listed.rows.starts, numbers)
    places = dict[str, int]()
    count = Counter[int]()
    for table, chosen in every.split_by_file(np.arange(len(numbers))):
        file = listed.rows.tables.index(table)
        start = int(listed.rows.starts[file])
        folder = listed.folders[table.name]
        names = [listed.image_column, *_also(columns, options)]
        part = read_columns(table, [*dict.fromkeys(names)]).take(pa.array(chosen))
        cells = {name: plain_column(part.column(name)).to_pylist() for name in part.column_names}
        above = posixpath.dirname(table.name)
        for row, number in enumerate(chosen.tolist()):
            cell = cells[listed.image_column][row]
            name = posixpath.join(above, str(cell).replace("\\", "/")) if cell else ""
            if name not in places:
                places[name] = len(boxes.images)
                opener = cell_opener(folder.complete(cell), folder.place_of(cell))
                size = [cells[each][row] for each in columns.size]
                frame = frame_of(*size) if size else None
                boxes.images.append(BoxedImage(name or f"{table.name}#{number}", opener, frame))
            image = places[name]
            values = [number_of(cells[each][row]) for each in columns.sides]
            sides = numbers_of(values[0]) if len(values) == 1 and values[0] else values
            count[image] += not is_empty(sides)
            key = str(cells[options.id_column][row]) if options.id_column else str(count[image])
            label = labels.get(start + number, reasons.get(start + number, ""))
            yield _Row(file, number, key, image, label, sides)


def _sizes(boxes: Boxes) -> dict[int, tuple[float, float]]:
    """Width and height of some images, evenly spaced, that the table does not say."""
    step = max(len(boxes.images) // _LOOKED_AT, 1)
    found = dict[int, tuple[float, float]]()
    for number in range(0, len(boxes.images), step):
        if boxes.images[number].frame is None:
            with suppress(ImageError):
                found[number] = _size_of(boxes.images[number].open)
    return found


def _size_of(opener: ImageOpener) -> tuple[float, float]:
    width, height = open_header(read_encoded(opener, DEFAULT_MAX_PIXELS), DEFAULT_MAX_PIXELS).size
    return float(width), float(height)


def _revise(location: str, options: DatasetOptions, changes: Mapping[str, str | None]) -> Revision:
    """The same tables but for the rows that have another label or are gone."""
    read = _read(location, options)
    listed = read.listed
    column = listed.label_column
    if column is None or listed.is_named:
        raise DatasetError(
            f"the labels of {location!r} are numbers with names elsewhere, or none",
            "write a list, by a name that ends in .csv",
        )
    rows, unknown = read.boxes.decided(changes)
    known = set(listed.listing.class_names)
    if all(each.isdecimal() for each in known) and any(
        not each.isdecimal() for each in new_names(changes, known)
    ):
        raise DatasetError(f"the labels of {location!r} are numbers", "give new classes numbers")
    edits = dict[int, dict[int, str | None]]()
    for row, label in rows:
        edits.setdefault(row.table, {})[row.number] = label
    files = [table.file.place for table in listed.rows.tables]
    root = replace(files[0], path=posixpath.commonpath([file.parent.path for file in files]))
    changed = {
        below(root, files[number]): revised_table(files[number], column, of_table)
        for number, of_table in edits.items()
    }
    images = [str(getattr(image.open, "path", "")) for image in read.boxes.images]
    others = [below(root, replace(root, path=path)) for path in images if path]
    others += [path for file in files if (path := below(root, file)) not in changed]
    return Revision(root, changed, [*dict.fromkeys(filter(None, others))], unknown)
