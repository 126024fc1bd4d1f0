"""Where the images of a table are whose cells are paths."""

import posixpath
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.image_openers import embedded, has_image_extension
from difficulty_service.datasets.labels import fold
from difficulty_service.datasets.splits import (
    match_split,
    split_of_file,
    split_of_folder,
)
from difficulty_service.datasets.storage import (
    StoredPath,
    is_folder,
    is_uri,
    list_folder,
)
from difficulty_service.datasets.table_columns import IMAGE_IDS, IMAGE_NAMES, holds_text
from difficulty_service.datasets.table_files import TableFile, read_cells

_TRIED = 5
"""Number of paths by which their folder is found."""

_SHOWN = 5
_DEPTH = 3  # of folders in each other
_USUAL_FOLDERS = ("images", "imgs", "img", "data", "photos")
_ENDINGS = (
    *("", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".webp", ".tif", ".bmp"),
    *(".tiff", ".TIF", ".TIFF", ".gif"),
)
"""What is tried after names that have no ending, as ids of images have not."""

_LOOKED_AT = 24
"""Number of rows, all over a table, of which a folder has to have the images."""

_MOST_FOLDERS = 20
"""Number of folders beside a table that are tried whatever they are called."""


@dataclass(frozen=True)
class ImageFolder:
    """The folder that the paths of a table are relative to.

    Attributes:
        ending: What is added to each path.
        note: What was assumed, as the predicate of a sentence about the table; None for nothing.
        others: Further folders, where the images are in several.
    """

    place: StoredPath
    ending: str = ""
    note: str | None = None
    others: tuple[StoredPath, ...] = ()

    def complete(self, cell: object) -> object:
        """A cell with the ending that its path lacks."""
        return cell + self.ending if self.ending and isinstance(cell, str) and cell else cell

    def place_of(self, cell: object) -> StoredPath:
        """The folder of the image of a cell."""
        if not self.others or not isinstance(cell, str):
            return self.place
        name = cell + self.ending
        return next((each for each in self.others if _is_file(each.join(name))), self.place)


def find_image_folder(
    table: TableFile, column: str, texts: tuple[str | Setting, ...] = ()
) -> ImageFolder:
    """The folder of a table, or one beside it, where that alone has the first images.

    `train.csv` has its images in `train`, `train_images` or `images`, often without their endings.

    Args:
        texts: End of a remedy, where another column is evidently of texts, which this one may name.

    Raises:
        DatasetError: No image of the first rows is found, whatever is put after their names, and
            they are ids or there are texts.
    """
    here = ImageFolder(table.file.place.parent)
    if not holds_text(table.schema.field(column).type) or not table.num_rows:
        return here
    names = _names(table, column, np.arange(min(table.num_rows, _TRIED)))
    if not names or any(_is_file(here.place.join(name.replace("\\", "/"))) for name in names):
        return here
    endings = [""] if has_image_extension(names[0]) else list(_ENDINGS)
    is_id = fold(column) in IMAGE_IDS or len(endings) > 1
    folders = list(dict.fromkeys(["", *_folders_beside(table), *(_others(table) if is_id else ())]))
    chosen = np.unique(np.linspace(0, table.num_rows - 1, _LOOKED_AT).astype(np.int64))
    look, found = _names(table, column, chosen), list[tuple[str, str, set[str]]]()
    tried_names = [*names, *(look if is_id else ())]  # those of several folders come in turn
    for folder in folders:
        for ending in endings:
            place = here.place.join(folder)
            if any(_is_file(place.join(name + ending)) for name in tried_names):
                there = {name for name in look if _is_file(place.join(name + ending))}
                if len(there) == len({*look}):
                    return ImageFolder(place, ending, _note([folder], ending))
                found.append((folder, ending, there))
    if found:
        return _of_several(here.place, found, {*look}) or _best(here.place, found)
    tried = [*dict.fromkeys(posixpath.join(folder, names[0]) for folder in folders)]
    after = f", each with {', '.join(endings[1:])} after it" if len(endings) > 1 else ""
    what = f"{names[0]!r} was looked for as {list_names([*map(repr, tried)], _SHOWN)}{after}"
    is_there = any(_is_file(here.place.join(name.replace("\\", "/"))) for name in look)
    if fold(column) in IMAGE_IDS or (texts and not is_there):
        raise DatasetError(
            f"no image of the first rows of {table.name!r} is found: in the column {column!r}, "
            f"{what}",
            "put the images into one folder beside the table, or name a column of their paths as ",
            Setting("image_column"),
            *texts,
            parameter="image_column",
        )
    # A column that is called otherwise may hold texts, as those of a classifier do.
    may_be_text = fold(column) not in IMAGE_NAMES and not has_image_extension(names[0])
    if is_there or may_be_text:
        return here
    return replace(here, note=f"has images that are not found: {what}")


def _names(table: TableFile, column: str, rows: NDArray[np.int64]) -> list[str]:
    """The paths in some rows, beside a remote table those that are relative to it."""
    cells = [cell for cell in read_cells(table, column, rows) if isinstance(cell, str) and cell]
    paths = [cell for cell in cells if not is_uri(cell) and embedded(cell) is None]
    return [path for path in paths if table.file.place.is_local or not posixpath.isabs(path)]


def _of_several(
    here: StoredPath, found: list[tuple[str, str, set[str]]], look: set[str]
) -> ImageFolder | None:
    """Folders that have the images together, each of them once."""
    for _, ending, _ in found:
        parts = [(folder, there) for folder, each, there in found if each == ending and there]
        together = set[str]().union(*(there for _, there in parts))
        if len(parts) > 1 and together == look and sum(len(each) for _, each in parts) == len(look):
            places = tuple(here.join(folder) for folder, _ in parts)
            note = _note([folder for folder, _ in parts], ending)
            return ImageFolder(places[0], ending, note, places)
    return None


def _best(here: StoredPath, found: list[tuple[str, str, set[str]]]) -> ImageFolder:
    folder, ending, _ = max(found, key=lambda each: len(each[2]))
    return ImageFolder(here.join(folder), ending, _note([folder], ending))


def _note(folders: list[str], ending: str) -> str:
    named = list_names([repr(folder) for folder in folders if folder], _SHOWN)
    where = f"below {named}" if named else ""
    what = f"with {ending!r} after their names" if ending else ""
    return f"has its images {' and '.join(filter(None, (where, what)))}"


def _folders_beside(table: TableFile) -> list[str]:
    """Folders in which the images of a table may be, and those in these, the likeliest first."""
    stem = posixpath.basename(table.name).partition(".")[0]
    found: list[str] = []
    above = [""]
    for _ in range(_DEPTH):
        above = [
            posixpath.join(folder, name)
            for folder in above
            for name in _likely(_folders_in(table.file.place.parent.join(folder)), stem, folder)
        ]
        found += above
    return found


def _others(table: TableFile) -> list[str]:
    """The folders beside a table that are of no other split than it, whatever they are called."""
    split = split_of_file(posixpath.basename(table.name).partition(".")[0])
    beside = _folders_in(table.file.place.parent)
    alike = [each for each in beside if split is None or split_of_folder(each) in (None, split)]
    return alike if len(alike) <= _MOST_FOLDERS else []


def _likely(folders: list[str], stem: str, above: str) -> list[str]:
    """Those of some folders that may hold the images of a table, the likeliest first.

    They are called as the table, as its split, as images or as the folder around them are, or are
    the only one. Where the table says of which split it is, none is of another split.
    """
    split = split_of_file(stem)
    others = [name for name in folders if split is None or split_of_folder(name) in (None, split)]
    own = [name for name in (stem, match_split(others, stem)) if name in others]
    same = [name for name in others if name == posixpath.basename(above)]
    usual = [name for name in others if name.lower() in _USUAL_FOLDERS]
    only = others if len(others) == 1 else []
    return list(dict.fromkeys([*own, *usual, *same, *only]))


def _folders_in(place: StoredPath) -> list[str]:
    try:
        return sorted(name for name, is_dir, _ in list_folder(place) if is_dir)
    except (OSError, DatasetError, ValueError):  # not readable, or outside of the boundary
        return []


def _is_file(place: StoredPath) -> bool:
    try:
        return is_folder(place, place.name) is False
    except (DatasetError, ValueError):  # outside of the boundary, or no path
        return False
