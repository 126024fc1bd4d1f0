"""CVAT for images 1.1: all boxes in one XML file, beside the images or above `images`.

The name of a box is the number of its shape in the image, counted from 1. A polygon stands for the
box around it. Shapes that are neither, and boxes that are rotated, are listed as skipped; tags of
images are kept, and not read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from xml.parsers import expat

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.json_spans import Span
from difficulty_service.datasets.listing import check_options
from difficulty_service.datasets.objects.boxes import (
    MOST_BYTES,
    BoxedImage,
    Boxes,
    bounds,
    build_boxes,
    edited,
    frame_of,
    new_names,
    once_each,
    within_limits,
)
from difficulty_service.datasets.objects.files import read_start, read_whole
from difficulty_service.datasets.objects.one_file import (
    MOST_LIMITED,
    FoundImage,
    ImagesByName,
    OneFile,
    choose_file,
    files_of,
)
from difficulty_service.datasets.objects.xml_text import (
    XmlReader,
    as_content,
    with_attribute,
    without,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import Entry, StoredPath

EXTENSION = ".xml"
SIDES = ("xtl", "ytl", "xbr", "ybr")
OTHERS = ("cuboid", "ellipse", "mask", "points", "polyline", "skeleton")
"""Shapes that are listed as skipped."""

_HEAD_BYTES = 1 << 16  # labels may come before the first image
_SHOWN = re.compile(rb"<version>|<image\s[^>]*\bname\s*=")
"""What CVAT writes into `<annotations>`, and what programs that write for it do."""

_LABELS = ("labels", "label")


def is_cvat_file(place: StoredPath) -> bool:
    """Whether a file begins as one of CVAT does."""
    if not place.name.lower().endswith(EXTENSION):
        return False
    _, root, rest = read_start(place, _HEAD_BYTES).partition(b"<annotations>")
    return bool(root) and _SHOWN.search(rest) is not None


def find_cvat(place: StoredPath, entries: list[Entry]) -> dict[str, StoredPath]:
    """Such files in a folder, by their names."""
    return files_of(place, entries, EXTENSION, is_cvat_file)


@dataclass(frozen=True)
class CvatShape:
    """A shape of an image.

    Attributes:
        kind: Name of its element.
        attributes: Those of its tag, as texts.
        span: Where the element is in the bytes of the file.
    """

    kind: str
    attributes: Mapping[str, str]
    span: Span


@dataclass(frozen=True)
class CvatImage:
    """An image, by the attributes of its tag, and its shapes."""

    attributes: Mapping[str, str]
    shapes: list[CvatShape] = field(default_factory=list)

    @property
    def subset(self) -> str:
        """The split that it is in; empty where the task has none."""
        return self.attributes.get("subset", "")

    @property
    def path(self) -> str:
        """Its path with the subset, in whose folder CVAT writes it."""
        name = self.attributes.get("name", "")
        return f"{self.subset}/{name}" if self.subset and name else name


def open_cvat(location: str, options: DatasetOptions) -> Dataset:
    """Opens a file, or the folder that holds it; the images of all its subsets, or of one."""
    check_options(options, "boxes in CVAT's format")
    read = _Split(location, options)
    revise = partial(_revise, location, options)
    return build_boxes(location, options, read.categories, read.boxes, revise)


class _Split:
    """The boxes of a file, each in the place of its shape."""

    def __init__(self, location: str, options: DatasetOptions) -> None:
        self.file = choose_file(location, options, find_cvat)
        most = MOST_BYTES if options.limits is None else MOST_LIMITED
        self.data = read_whole(self.file.place, location, most)
        self.reader = parse(self.data, self.file.place)
        images = _of_split(self.reader.images, self.file, location)
        pairs = [(image, shape) for image in images for shape in image.shapes]
        named = [each.attributes.get("label", "") for _, each in pairs if each.kind not in OTHERS]
        self.categories = [*self.reader.labels]
        self.categories += sorted({*named}.difference(self.categories, {""}))
        self.boxes = Boxes()
        self._add(images, options, location)

    def _add(self, images: Sequence[CvatImage], options: DatasetOptions, location: str) -> None:
        labels = {name: label for label, name in enumerate(self.categories)}
        search = ImagesByName(self.file.root, self.file.sizes)
        found = search.find_all(image.path for image in images)
        boxed = [_boxed(image, search, found[image.path]) for image in images]
        names = [each.name for each in boxed]
        is_kept, several = once_each(names, [bool(image.shapes) for image in images])
        subsets = {name: list[str]() for name in several}
        for image, name in zip(images, names, strict=True):
            if name in several and image.subset not in subsets[name]:
                subsets[name].append(image.subset)
        rows = list(accumulate(is_kept, initial=0))
        self.boxes.images += [each for each, kept in zip(boxed, is_kept, strict=True) if kept]
        every = (
            (place, number, shape)
            for place, image in enumerate(images)
            for number, shape in enumerate(image.shapes, 1)
        )
        for place, number, shape in within_limits(every, options, location):
            if not is_kept[place]:
                name = names[place]
                self.boxes.skip(f"{images[place].path}#{number}", _repeated(name, subsets[name]))
                continue
            problem = _problem(shape)
            label = labels.get(shape.attributes.get("label", ""), "it has no category")
            sides, polygons = _sides(shape), _polygons(shape)
            self.boxes.add(rows[place], str(number), problem or label, sides, polygons, shape)


def _boxed(image: CvatImage, search: ImagesByName, found: FoundImage) -> BoxedImage:
    frame = frame_of(*map(_number, map(image.attributes.get, ("width", "height"))))
    # Images of several subsets may be called alike.
    name = image.attributes.get("name", "")
    return search.image(name, found, frame)


def _repeated(name: str, subsets: Sequence[str]) -> str:
    reason = f"several images of the file are called {name!r}"
    if len(subsets) < 2:  # noqa: PLR2004
        return reason
    return f"{reason}: choose one of the subsets {list_names(sorted(subsets))} as split"


def _of_split(images: Sequence[CvatImage], file: OneFile, location: str) -> list[CvatImage]:
    if file.split is None:
        return [*images]
    subsets = sorted({image.subset for image in images} - {""})
    if not subsets:
        raise DatasetError.leave_out(f"{location!r} has no subsets", "split")
    chosen = choose_split(subsets, file.split, location)
    return [image for image in images if image.subset == chosen]


def _problem(shape: CvatShape) -> str | None:
    """The reason why a shape is no box; None where it is one or has one around it."""
    if shape.kind in OTHERS:
        return f"it is a shape of the kind {shape.kind}, and no box or polygon"
    rotation = _number(shape.attributes.get("rotation", "0"))
    if shape.kind == "box" and (rotation is None or rotation % 360):
        return f"it is rotated by {shape.attributes['rotation'][:20]} degrees"
    return None


def _sides(shape: CvatShape) -> Sequence[object]:
    if shape.kind == "box":
        return [_number(shape.attributes.get(name)) for name in SIDES]
    return bounds(_points(shape))


def _polygons(shape: CvatShape) -> Sequence[Sequence[object]]:
    """The one polygon that a shape may be, as numbers."""
    return [[*chain(*_points(shape))]] if shape.kind == "polygon" else []


def _points(shape: CvatShape) -> Sequence[Sequence[object]]:
    points = [point.split(",") for point in shape.attributes.get("points", "").split(";")]
    return [[_number(each) for each in point] for point in points]


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def parse(data: bytes, place: StoredPath) -> "CvatReader":
    """What a file says; raises DatasetError where it is damaged or of a video."""
    reader = CvatReader(data)
    try:
        reader.read()
    except (expat.ExpatError, ValueError) as error:
        raise DatasetError(f"{place.name!r} is damaged: {error}", "export it again") from error
    if reader.has_tracks:
        raise DatasetError.of_location(
            f"{place.name!r} has tracks of a video", "export it from CVAT as CVAT for images 1.1"
        )
    return reader


class CvatReader(XmlReader):
    """Reads a file.

    Attributes:
        labels: Names of the labels that the file declares, in its order.
        last_label: Where the last of them is; None where none is declared.
        has_tracks: Whether it is of a video.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.images: list[CvatImage] = []
        self.labels: dict[str, None] = {}
        self.last_label: Span | None = None
        self.has_tracks = False
        self._tags: list[tuple[int, Mapping[str, str]]] = []
        self._label: dict[str, str] = {}

    def opened(self, attributes: Mapping[str, str]) -> None:
        """Begins an image, a shape or a label."""
        self._tags = [*self._tags[: len(self.path) - 1], (self.began, attributes)]
        self.has_tracks |= self.path == ["annotations", "track"]
        if self.path == ["annotations", "image"]:
            self.images.append(CvatImage(attributes))
        elif self._is_label():
            self._label = {}

    def closed(self, text: str, end: int) -> None:
        """Takes a shape, a label or what it says."""
        began, attributes = self._tags[len(self.path) - 1]
        kind = self.path[-1]
        if self._is_label():
            self._add_label((began, self.last_of(end)))
        elif tuple(self.path[-3:-1]) == _LABELS:
            self._label[kind] = text.strip()
        elif self.path[:-1] == ["annotations", "image"] and kind in {"box", "polygon", *OTHERS}:
            shape = CvatShape(kind, attributes, (began, self.last_of(end)))
            self.images[-1].shapes.append(shape)

    def _is_label(self) -> bool:
        return self.path[:2] == ["annotations", "meta"] and tuple(self.path[-2:]) == _LABELS

    def _add_label(self, span: Span) -> None:
        self.last_label = span
        name = self._label.get("name", "")
        # Others are of the points of a skeleton, or of whole images.
        if name and not self._label.get("parent") and self._label.get("type") != "tag":
            self.labels[name] = None


def _revise(location: str, options: DatasetOptions, changes: Mapping[str, str | None]) -> Revision:
    """The same bytes but for the shapes that have another label or are gone."""
    read = _Split(location, options)
    shapes, unknown = read.boxes.decided(changes)
    edits = [*_new_labels(read, new_names(changes, read.categories))]
    edits += [
        without(read.data, shape.span)
        if label is None
        else with_attribute(read.data, shape.span[0], "label", label)
        for shape, label in shapes
    ]
    return read.file.revision(edited(read.data, edits), read.boxes, unknown)


def _new_labels(read: _Split, names: Sequence[str]) -> Iterator[tuple[int, int, bytes]]:
    """Declares labels after the last one, where any are declared."""
    if read.reader.last_label is None:
        return
    start, end = read.reader.last_label
    blanks = read.data[len(read.data[:start].rstrip(b" \t\r\n")) : start]
    for name in names:
        label = b"<label><name>%s</name><type>any</type><attributes></attributes></label>"
        yield end, end, blanks + label % as_content(name)
