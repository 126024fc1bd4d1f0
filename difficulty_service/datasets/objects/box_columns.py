"""Which columns of a table are the sides of boxes, and what the numbers in them mean.

The names say it as far as they can. What they leave open, whether `x` and `y` are a corner or the
centre and whether a list of four numbers ends in a corner or a size, is told by which reading keeps
every box inside its image; where several do, a person is asked.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError

CORNERS, CORNER_AND_SIZE, CENTRE_AND_SIZE = "corners", "corner and size", "centre and size"
"""What four numbers are."""

_NAMES: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    CORNERS: (
        ("xmin", "ymin", "xmax", "ymax"),
        ("minx", "miny", "maxx", "maxy"),
        ("x1", "y1", "x2", "y2"),
        ("x0", "y0", "x1", "y1"),
        ("left", "top", "right", "bottom"),
        ("xtl", "ytl", "xbr", "ybr"),
    ),
    CENTRE_AND_SIZE: (
        ("xcenter", "ycenter", "width", "height"),
        ("xcenter", "ycenter", "w", "h"),
        ("xcentre", "ycentre", "width", "height"),
        ("centerx", "centery", "width", "height"),
        ("cx", "cy", "w", "h"),
        ("cx", "cy", "width", "height"),
    ),
    CORNER_AND_SIZE: (
        ("x", "y", "w", "h"),
        ("x", "y", "width", "height"),
        ("xmin", "ymin", "width", "height"),
        ("xmin", "ymin", "w", "h"),
        ("left", "top", "width", "height"),
    ),
}
"""Names of four columns, without what is no letter or digit, in the order of their numbers."""

_IN_ONE = ("bbox", "box", "boundingbox")
_PREFIX = re.compile(r"^(?:boundingbox|bbox|box)(?=.)")
_SIZES = (
    ("width", "height"), ("imagewidth", "imageheight"), ("imgwidth", "imgheight"), ("imgw", "imgh")
)  # fmt: skip
_NUMBER = r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*"
_FOUR = re.compile(rf"[\[({{]?{_NUMBER}(?:[,;]?{_NUMBER}){{3}}[\])}}]?")
_PART = re.compile(_NUMBER)
_BEYOND = 1.01
"""How far a box that is drawn by hand may stick out of its image, as a multiple of its side."""


@dataclass(frozen=True)
class BoxColumns:
    """The columns with the boxes of a table.

    Attributes:
        sides: Four columns, or one with four numbers in each cell.
        meaning: What the numbers are; None where the names do not say it.
        is_sure: Whether the names leave no other meaning.
        size: Columns with the width and the height of the image.
    """

    sides: tuple[str, ...]
    meaning: str | None
    is_sure: bool
    size: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return (*self.sides, *self.size)


def box_columns(names: Iterable[str]) -> BoxColumns | None:
    """The columns with boxes by the names of all columns; None where there are none."""
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in reversed([*names])}
    whole = {_PREFIX.sub("", key): name for key, name in plain.items()} | plain
    for meaning, sets in _NAMES.items():
        for wanted in sets:
            if all(each in whole for each in wanted):
                sides = tuple(_own(each, plain, whole) for each in wanted)
                is_sure = meaning != CORNER_AND_SIZE or wanted[0] not in {"x", "left"}
                return BoxColumns(sides, meaning, is_sure, _size(plain, sides))
    in_one = next((plain[each] for each in _IN_ONE if each in plain), None)
    if in_one is None:
        return None
    return BoxColumns((in_one,), None, is_sure=False, size=_size(plain, (in_one,)))


def _own(wanted: str, plain: Mapping[str, str], whole: Mapping[str, str]) -> str:
    """The column of a side: that of the box, where the image has one of the same name."""
    prefixed = (plain.get(f"{prefix}{wanted}") for prefix in ("bbox", "box", "boundingbox"))
    return next(filter(None, prefixed), whole[wanted])


def _size(plain: Mapping[str, str], used: Sequence[str]) -> tuple[str, ...]:
    for pair in _SIZES:
        found = tuple(plain[each] for each in pair if each in plain)
        if len(found) == len(pair) and not {*found} & {*used}:
            return found
    return ()


def numbers_of(cell: object) -> Sequence[object]:
    """The four numbers of a cell, `[1, 2, 3, 4]` as a list or as text; others as they are."""
    if isinstance(cell, str):
        if _FOUR.fullmatch(cell.strip()):
            return [float(each) for each in _PART.findall(cell)]
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return ()
    return cell if isinstance(cell, list) else ()


def number_of(cell: object) -> object:
    """The number of a cell; any other as it is. A column called `y` is read as text."""
    return float(cell) if isinstance(cell, str) and _PART.fullmatch(cell) else cell


def is_empty(numbers: Sequence[object]) -> bool:
    """Whether a row says of its image that it has no box."""
    return all(each is None or each == "" for each in numbers)


@dataclass(frozen=True)
class Meaning:
    """What the numbers of all boxes are.

    Attributes:
        kind: CORNERS, CORNER_AND_SIZE or CENTRE_AND_SIZE.
        are_shares: Whether they are shares of the image, and no pixels.
        note: What was assumed, as the end of a sentence about the boxes.
    """

    kind: str
    are_shares: bool
    note: str = ""

    def sides(self, numbers: Sequence[object]) -> Sequence[object]:
        """Left, top, right and bottom of a box."""
        if self.kind == CORNERS or not _are_numbers(numbers):
            return numbers
        first, second, width, height = map(float, numbers)  # type: ignore[arg-type]
        if self.kind == CENTRE_AND_SIZE:
            first, second = first - width / 2, second - height / 2
        return first, second, first + width, second + height


def _are_numbers(numbers: Sequence[object]) -> bool:
    return len(numbers) == 4 and all(isinstance(each, int | float) for each in numbers)  # noqa: PLR2004


def meaning_of(
    columns: BoxColumns,
    boxes: Sequence[Sequence[object]],
    frames: Sequence[tuple[float, float] | None],
) -> Meaning:
    """What the numbers of boxes are.

    Args:
        boxes: Numbers of each box.
        frames: Width and height of the image of each, None where they are not known.

    Raises:
        DatasetError: Several readings keep all boxes inside their images, and no name says which.
    """
    known = [
        (numbers, frame)
        for numbers, frame in zip(boxes, frames, strict=True)
        if _are_numbers(numbers)
    ]
    if not known:
        return Meaning(columns.meaning or CORNERS, are_shares=False)
    values = np.array([numbers for numbers, _ in known], np.float64)
    sizes = np.array([frame or (np.inf, np.inf) for _, frame in known], np.float64)
    shares = bool(values.max() <= 1 and (values % 1 != 0).any())
    limits = np.ones_like(sizes) if shares else sizes
    said = Meaning(columns.meaning or CORNERS, shares, "in shares of the image" if shares else "")
    if columns.is_sure and columns.meaning is not None:
        return said
    usual = [CORNER_AND_SIZE, CENTRE_AND_SIZE if columns.meaning else CORNERS]
    fitting = [kind for kind in usual if _fits(kind, values, limits)]
    is_clear = len(fitting) == 1
    # Pixels of a column `x` are those of a corner nearly always; shares are as often of a centre.
    if not is_clear and columns.meaning is not None and not shares:
        fitting = fitting[:1] or usual[:1]
    if len(fitting) != 1:
        raise DatasetError.of_location(
            f"the numbers in {', '.join(map(repr, columns.sides))} may be {' or '.join(usual)} of "
            "boxes",
            "name the columns x_min, y_min, x_max and y_max, or x_min, y_min, width and height, or "
            "x_center, y_center, width and height, one number in each",
        )
    words = f"as {fitting[0]}" + (", in shares of the image" if shares else "")
    return replace(said, kind=fitting[0], note=words)


def _fits(kind: str, values: NDArray[np.float64], limits: NDArray[np.float64]) -> bool:
    """Whether boxes of a kind have an area and lie inside their images."""
    first, second = values[:, :2], values[:, 2:]
    if kind == CORNERS:
        low, high = first, second
    elif kind == CORNER_AND_SIZE:
        low, high = first, first + second
    else:
        low, high = first - second / 2, first + second / 2
    slack = np.where(np.isfinite(limits), (_BEYOND - 1) * limits, 0)
    return bool(((high > low) & (low >= -slack) & (high <= _BEYOND * limits)).mean() > 0.99)  # noqa: PLR2004
