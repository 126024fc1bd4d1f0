"""Where the images of a table are whose cells are paths."""

import posixpath
from dataclasses import dataclass

import numpy as np

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.image_openers import has_image_extension
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
from difficulty_service.datasets.table_columns import holds_text
from difficulty_service.datasets.table_files import TableFile, read_cells

_TRIED = 5
"""Number of paths by which their folder is found."""

_DEPTH = 3  # of folders in each other
_USUAL_FOLDERS = ("images", "imgs", "img", "data", "photos")
_ENDINGS = ("", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".webp", ".tif", ".bmp")
"""What is tried after names that have no ending, as ids of images have not."""


@dataclass(frozen=True)
class ImageFolder:
    """The folder that the paths of a table are relative to.

    Attributes:
        ending: What is added to each path.
        note: What was assumed, as the predicate of a sentence about the table; None for nothing.
    """

    place: StoredPath
    ending: str = ""
    note: str | None = None

    def complete(self, cell: object) -> object:
        """A cell with the ending that its path lacks."""
        return cell + self.ending if self.ending and isinstance(cell, str) and cell else cell


def find_image_folder(table: TableFile, column: str) -> ImageFolder:
    """The folder of a table, or one beside it, where that alone has the first images.

    `train.csv` has its images in `train`, `train_images` or `images`, often without their endings.
    """
    here = ImageFolder(table.file.place.parent)
    if not holds_text(table.schema.field(column).type) or not table.num_rows:
        return here
    rows = np.arange(min(table.num_rows, _TRIED))
    cells = [cell for cell in read_cells(table, column, rows) if isinstance(cell, str) and cell]
    names = [cell for cell in cells if not is_uri(cell) and not posixpath.isabs(cell)]
    if not names or any(_is_file(here.place.join(name.replace("\\", "/"))) for name in names):
        return here
    endings = [""] if has_image_extension(names[0]) else list(_ENDINGS)
    for folder in ["", *_folders_beside(table)]:
        for ending in endings:
            if any(_is_file(here.place.join(folder).join(name + ending)) for name in names):
                return ImageFolder(here.place.join(folder), ending, _note(folder, ending))
    return here


def _note(folder: str, ending: str) -> str:
    where = f"below {folder!r}" if folder else ""
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
