"""Boxes of objects in images, as samples: what all formats of them share.

A sample is the object in a box with what is around it (`images.crops`), its label the category of
the box. Its id is `image#box`. Nothing is left out silently: a box without a category, numbers or
an area is listed as skipped, and one whose image is missing or does not reach it, or that is too
small to show anything, as an image that cannot be read.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, AnyStr, TypeVar

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import count_of, list_names
from difficulty_service.datasets.listing import Listing, as_text, build_dataset
from difficulty_service.datasets.sample import (
    Dataset,
    DatasetOptions,
    ImageOpener,
    Revise,
    Scenes,
    Skipped,
)
from difficulty_service.datasets.table_files import require_rows
from difficulty_service.images.crops import CONTEXT, Crop, CropOpener, Outline, Sides
from difficulty_service.images.header import DEFAULT_MAX_PIXELS

DOUBLED = 0.9
"""Intersection over union from which two boxes of a category are around the same object."""

FEWEST_NUMBERS = 6
"""Numbers of a polygon with the fewest corners."""

NAMED = 20
"""Number of doubled boxes that a sentence names."""

MOST_PIXELS = 8 * DEFAULT_MAX_PIXELS
"""Pixels of an image with boxes: those from above have many times as many as a photograph."""

MOST_BYTES = 1 << 31
"""Bytes of a file of annotations; it is text, and is in memory as a whole."""


@dataclass(frozen=True)
class BoxedImage:
    """An image with boxes.

    Attributes:
        name: What the ids of its boxes begin with.
        frame: Width and height that the boxes go by; None for its pixels.
        size: Encoded bytes; 0 where they are not known.
        is_upright: Whether the boxes are of the upright image, although the frame may be that of
            the image as it is stored.
    """

    name: str
    open: ImageOpener
    frame: tuple[float, float] | None
    size: int = 0
    is_upright: bool = False


@dataclass
class Boxes:
    """The boxes of a dataset, as they are read.

    Attributes:
        rows: Place of the image of each box.
        names: Name of each box in its image.
        labels: Place of its category.
        places: Where each box is in the files, as the format says it.
        annotated: Places of the images about whose boxes there is anything, right or wrong.
    """

    images: list[BoxedImage] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    sides: list[Sides] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    places: list[Any] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    annotated: set[int] = field(default_factory=set)
    _taken: set[tuple[int, str]] = field(default_factory=set)

    def add(
        self,
        image: int,
        name: str,
        label: int | str,
        sides: Sequence[object],
        polygons: Sequence[Sequence[object]] = (),
        place: object = None,
    ) -> None:
        """Adds a box of an image, or lists why it is none; a label of text is such a reason.

        Args:
            polygons: Around the object in it, each as x and y of its corners in turn.
            place: Where it is in the files.
        """
        self.annotated.add(image)
        reason = label if isinstance(label, str) else _problem(sides)
        if reason is None and (image, name) in self._taken:
            reason = "another box of the image has the same name"
        if reason is not None or isinstance(label, str):
            self.skip(f"{self.images[image].name}#{name}", str(reason))
            return
        self._taken.add((image, name))
        self.rows.append(image)
        self.names.append(name)
        self.labels.append(label)
        self.sides.append(tuple(map(float, sides)))  # type: ignore[arg-type]
        self.outlines.append(_outline(polygons))
        self.places.append(place)

    def skip(self, name: str, reason: str) -> None:
        """Lists what is no box."""
        self.skipped.append((as_text(name), reason))

    def ids(self) -> list[str]:
        """`image#box` of every box."""
        pairs = zip(self.rows, self.names, strict=True)
        return [as_text(f"{self.images[row].name}#{name}") for row, name in pairs]

    def decided(
        self, changes: Mapping[str, str | None]
    ) -> tuple[Sequence[tuple[Any, str | None]], Sequence[str]]:
        """Places of the boxes that change and what they become, and the ids of no box."""
        places = dict(zip(self.ids(), self.places, strict=True))
        known = [(places[name], label) for name, label in changes.items() if name in places]
        return known, [name for name in changes if name not in places]


Name = TypeVar("Name", str, str | None)


def once_each(names: Sequence[Name], boxed: Sequence[bool]) -> tuple[list[bool], frozenset[Name]]:
    """Which images are read where names repeat, and the names that several with boxes have.

    Of these, nobody knows which boxes are those of the one image of the name.

    Args:
        boxed: Whether there are boxes of each image.
    """
    of_name = defaultdict[Name, list[int]](list)
    for place, name in enumerate(names):
        of_name[name].append(place)
    kept, several = [False] * len(names), set[Name]()
    for name, places in of_name.items():
        with_boxes = [place for place in places if boxed[place]]
        if len(with_boxes) > 1:
            several.add(name)
        else:
            kept[(with_boxes or places)[0]] = True
    return kept, frozenset(several)


def _problem(sides: Sequence[object]) -> str | None:
    """The reason why four sides are no box; None where they are one."""
    numbers = [each for each in sides if isinstance(each, int | float)]
    if not (len(numbers) == len(sides) == 4 and all(map(_is_finite, numbers))):  # noqa: PLR2004
        return "its box is not four numbers"
    left, top, right, bottom = numbers
    return None if right > left and bottom > top else "its box has no area"


def _outline(polygons: Sequence[Sequence[object]]) -> Outline:
    """Polygons as points; none where one of them is no polygon."""
    found = []
    for polygon in polygons:
        numbers = [each for each in polygon if isinstance(each, int | float)]
        is_whole = len(numbers) == len(polygon) and all(map(_is_finite, numbers))
        if not is_whole or len(numbers) < FEWEST_NUMBERS or len(numbers) % 2:
            return ()
        found.append(tuple(zip(map(float, numbers[::2]), map(float, numbers[1::2]), strict=True)))
    return tuple(found)


def build_boxes(
    location: str,
    options: DatasetOptions,
    categories: Sequence[str],
    boxes: Boxes,
    revise: Revise,
    notes: Sequence[str] = (),
) -> Dataset:
    """The dataset of boxes whose labels are places in `categories`; notes become warnings."""
    sides = np.array(boxes.sides, np.float64).reshape(-1, 4)
    rows, labels = np.array(boxes.rows, np.int64), np.array(boxes.labels, np.int32)
    ids = boxes.ids()
    frames = [image.frame for image in boxes.images]
    outlines = chosen_outlines(location, options, boxes)
    digest = hashlib.sha256(repr((CONTEXT, frames)).encode())
    if options.outlines:
        digest.update(repr(outlines).encode())
    upright = [image.is_upright for image in boxes.images]
    if any(upright):
        digest.update(repr(upright).encode())
    digest.update(sides.astype("<f8").tobytes())
    listing = Listing(
        distinct_names(categories),
        ids,
        labels,
        np.array([image.size for image in boxes.images], np.int64)[rows],
        ("boxes", digest.hexdigest()),
        boxes.skipped,
        (
            *notes,
            *_empty_sentence(boxes),
            *_doubled_sentence(ids, rows, labels, sides),
            *(_bare_sentence(outlines) if options.outlines else ()),
        ),
    )
    max_pixels = MOST_PIXELS if options.limits is None else DEFAULT_MAX_PIXELS
    open_at = partial(_open_at, boxes.images, rows, sides, outlines, max_pixels)
    describe = [repr(name) for name in ids].__getitem__
    dataset = build_dataset(location, options, listing, open_at, describe)
    names = [as_text(image.name) for image in boxes.images]
    openers = [image.open for image in boxes.images]
    scenes = Scenes(names, openers, frames, rows, sides, max_pixels, upright)
    return replace(dataset, revise=revise, scenes=scenes)


def _open_at(
    images: Sequence[BoxedImage],
    rows: NDArray[np.int64],
    sides: NDArray[np.float64],
    outlines: Sequence[Outline],
    max_pixels: int,
    positions: NDArray[np.int64],
) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        image = images[rows[position]]
        left, top, right, bottom = sides[position].tolist()
        crop = Crop((left, top, right, bottom), image.frame, outlines[position], image.is_upright)
        yield CropOpener(image.open, crop, max_pixels)


def chosen_outlines(location: str, options: DatasetOptions, boxes: Boxes) -> Sequence[Outline]:
    """The outline of each box, empty where it is not asked for.

    Raises:
        DatasetError: Outlines are asked for, and there are none.
    """
    if not options.outlines:
        return [()] * len(boxes.rows)
    if not any(boxes.outlines):
        raise DatasetError.leave_out(f"no box of {location!r} has an outline", "outlines")
    return boxes.outlines


def _bare_sentence(outlines: Sequence[Outline]) -> list[str]:
    bare = sum(not outline for outline in outlines)
    has = "has" if bare == 1 else "have"
    return [f"{count_of(bare, 'box', 'boxes')} {has} no outline, so all is shown"] if bare else []


def distinct_names(categories: Sequence[str]) -> tuple[str, ...]:
    """Names of categories, with the place of one whose name another has, too."""
    number = Counter(categories)
    return tuple(
        name if number[name] == 1 else f"{name} ({place})" for place, name in enumerate(categories)
    )


def _empty_sentence(boxes: Boxes) -> list[str]:
    number = len(boxes.images) - len(boxes.annotated)
    has = "has" if number == 1 else "have"
    return [f"{count_of(number, 'image')} {has} no box"] if number else []


def _doubled_sentence(
    ids: Sequence[str],
    rows: NDArray[np.int64],
    labels: NDArray[np.int32],
    sides: NDArray[np.float64],
) -> list[str]:
    doubled = find_doubled(rows, labels, sides)
    if not doubled:
        return []
    pairs = [f"{ids[second]!r} of {ids[first]!r}" for first, second in doubled]
    verb = "is around the same object as" if len(doubled) == 1 else "are around the same objects as"
    return [
        f"{count_of(len(doubled), 'box', 'boxes')} {verb} another of the same category "
        f"(intersection over union of {DOUBLED} or more): {list_names(pairs, NAMED)}"
    ]


def find_doubled(
    rows: NDArray[np.int64], labels: NDArray[np.int32], sides: NDArray[np.float64]
) -> list[tuple[int, int]]:
    """Positions of two boxes of an image and a category that are around the same object.

    Each box occurs once as the second one, with the first one that it doubles.

    Args:
        rows: Place of the image of each box. Shape (boxes,).
        sides: Left, top, right and bottom. Shape (boxes, 4).
    """
    groups = defaultdict[tuple[int, int], list[int]](list)
    for position, key in enumerate(zip(rows.tolist(), labels.tolist(), strict=True)):
        groups[key].append(position)
    doubled = []
    for group in groups.values():
        corners = sides[group]
        for place in range(1, len(group)):
            here, before = corners[place], corners[:place]
            inner = np.minimum(here[2:], before[:, 2:]) - np.maximum(here[:2], before[:, :2])
            shared = inner.clip(0).prod(axis=1)
            areas = [np.prod(each[..., 2:] - each[..., :2], axis=-1) for each in (here, before)]
            same = np.flatnonzero(shared >= DOUBLED * (areas[0] + areas[1] - shared))
            if len(same):
                doubled.append((group[int(same[0])], group[place]))
    return sorted(doubled, key=lambda pair: pair[1])


def bounds(points: Sequence[Sequence[object]]) -> Sequence[object]:
    """Sides of the box around points; none where one of them is not two finite numbers."""
    for point in points:
        numbers = [each for each in point if isinstance(each, int | float)]
        if len(point) != 2 or len(numbers) != 2 or not all(map(_is_finite, numbers)):  # noqa: PLR2004
            return ()
    if not points:
        return ()
    across, down = ([float(point[axis]) for point in points] for axis in (0, 1))  # type: ignore[arg-type]
    return min(across), min(down), max(across), max(down)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond those of floating point
        return False


def frame_of(width: object, height: object) -> tuple[float, float] | None:
    """Width and height of an image as annotations say them; None where they say no size."""
    if not isinstance(width, int | float) or not isinstance(height, int | float):
        return None
    try:
        return (float(width), float(height)) if min(width, height) > 0 else None
    except OverflowError:
        return None


def edited(text: AnyStr, edits: Iterable[tuple[int, int, AnyStr]]) -> AnyStr:
    """A text or bytes with some of it replaced.

    Args:
        edits: The first place that is replaced, the one after the last, and what comes there. They
            do not overlap.
    """
    done = 0
    parts: list[AnyStr] = []
    for start, end, new in sorted(edits):
        parts += [text[done:start], new]
        done = end
    parts.append(text[done:])
    return text[:0].join(parts)


Row = TypeVar("Row")


def within_limits(rows: Iterable[Row], options: DatasetOptions, location: str) -> Iterator[Row]:
    """The rows, of which people who are not trusted may have a limited number."""
    for number, row in enumerate(rows, 1):
        if options.limits is not None:
            require_rows(number, options.limits, repr(location))
        yield row


def new_names(changes: Mapping[str, str | None], known: Iterable[str]) -> list[str]:
    """The categories of changes that a dataset does not have, in their order."""
    wanted = dict.fromkeys(label for label in changes.values() if label is not None)
    return [name for name in wanted if name not in set(known)]
