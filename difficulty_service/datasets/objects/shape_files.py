"""LabelMe, Supervisely and CreateML: JSON with shapes on images, read as the boxes around them.

The name of a box is the number of its shape in the list of its image, counted from 1. Polygons are
outlines too; lines and points are listed as skipped. What is written back is the same text but for
the shapes that somebody decided about.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from difficulty_service.datasets.image_openers import cell_opener
from difficulty_service.datasets.json_spans import (
    Span,
    first_character,
    removals,
    walk_list,
    walk_object,
)
from difficulty_service.datasets.listing import as_text, check_options
from difficulty_service.datasets.objects.boxes import (
    BoxedImage,
    Boxes,
    bounds,
    build_boxes,
    edited,
    frame_of,
    within_limits,
)
from difficulty_service.datasets.objects.files import (
    find_folder,
    read_files,
    read_or_reason,
    read_start,
    walk,
    without_mark,
)
from difficulty_service.datasets.objects.one_file import ImagesByName
from difficulty_service.datasets.objects.whole_images import build_images
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener, Revision
from difficulty_service.datasets.splits import SPLIT_NAMES, choose_split
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    list_folder,
    resolve,
)

EXTENSION = ".json"

_LOOKED_AT = 20
_HEAD_BYTES = 1 << 16
_LEVELS = 2
_CIRCLE = 2  # points: the centre and one on its edge
_SHAPED = ("polygon", "rectangle", "circle", "mask", "bitmap")


@dataclass(frozen=True)
class Shape:
    """A shape on an image.

    Attributes:
        label: Its class; or, where it is no box, the reason.
        is_box: Whether it is one, or has one around it.
        corners: Of its outline, x and y in turn; none of a box.
    """

    label: str
    sides: Sequence[object] = ()
    corners: Sequence[object] = ()
    is_box: bool = True


@dataclass(frozen=True)
class ShapeFormat:
    """A format of such files.

    Attributes:
        title: What people call it.
        is_it: Whether the first bytes of a file are of the format.
        folders: Folders of such files beside those of images, in lower case.
        items: Key of the list of shapes of an image.
        label: Key of the class of a shape.
        image: Name of the image of a file, from its path and its content.
        frame: Width and height of the image that the content states.
        shape: What a shape is.
        is_list: Whether a file is a list of images, each with its shapes.
        project: Name of a file about a project, beside which each folder may have such files.
    """

    title: str
    is_it: Callable[[bytes], bool]
    folders: frozenset[str]
    items: str
    label: str
    image: Callable[[str, Mapping[str, Any]], str]
    frame: Callable[[Mapping[str, Any]], tuple[float, float] | None]
    shape: Callable[[Mapping[str, Any]], Shape]
    is_list: bool = False
    project: str = ""


@dataclass(frozen=True)
class _ShapePlace:
    """Where a box is written: the file, the number of its image in it, and that of its shape."""

    file: str
    image: int
    shape: int


@dataclass(frozen=True)
class _ReadShapes:
    """What files say.

    Attributes:
        flags: Of each image, the names of the flags that are set.
    """

    root: StoredPath
    everything: Mapping[str, int]
    boxes: Boxes
    categories: Sequence[str]
    flags: Sequence[Sequence[str]]


def is_of_shapes(form: ShapeFormat, place: StoredPath, entries: list[Entry]) -> bool:
    """Whether a folder has files of a format, in itself, in a folder of annotations or a split."""
    try:
        return any(_is_file(form, each) for each in _candidates(form, place, entries, _LEVELS))
    except OSError:
        return False


def _candidates(
    form: ShapeFormat, place: StoredPath, entries: list[Entry], levels: int
) -> Iterator[StoredPath]:
    names = sorted(name for name, is_dir, _ in entries if not is_dir and _is_json(name))
    yield from (place.join(name) for name in names[:_LOOKED_AT])
    folders = [name for name, is_dir, _ in sorted(entries) if is_dir]
    if form.project not in names:
        folders = [name for name in folders if name.lower() in form.folders | SPLIT_NAMES]
    for name in folders[:_LOOKED_AT] if levels else ():
        below = place.join(name)
        yield from _candidates(form, below, list_folder(below), levels - 1)


def _is_json(name: str) -> bool:
    return name.lower().endswith(EXTENSION) and not name.startswith(".")


def _is_file(form: ShapeFormat, place: StoredPath) -> bool:
    return _is_json(place.name) and form.is_it(read_start(place, _HEAD_BYTES))


def is_shape_file(form: ShapeFormat, place: StoredPath) -> bool:
    """Whether a file that is named has the shapes of many images."""
    return form.is_list and _is_file(form, place)


def open_shapes(form: ShapeFormat, location: str, options: DatasetOptions) -> Dataset:
    """Opens the folder of a dataset, all of it or a split; or a file of many images.

    Where no image has a shape and some have a flag of LabelMe, the images are the samples, and
    their flags the labels.
    """
    check_options(options, f"boxes of {form.title}")
    read = _read(form, location, options)
    if any(read.flags) and not read.boxes.rows and not options.outlines:
        return _flagged(location, options, read)
    revise = partial(_revise, form, location, options)
    return build_boxes(location, options, read.categories, read.boxes, revise)


def _read(form: ShapeFormat, location: str, options: DatasetOptions) -> _ReadShapes:
    root, files = _files(form, location, options)
    everything = walk(root)
    images = ImagesByName(root, everything)
    boxes = Boxes()
    found = list[tuple[str, int, str, Mapping[str, Any]]]()
    contents = read_files([root.join(file) for file in files])
    for file, data in zip(files, contents, strict=True):
        if isinstance(data, str):
            boxes.skip(file, f"its boxes cannot be read: the file {data}")
            continue
        if not form.is_it(data[:_HEAD_BYTES]):
            continue  # about something else
        try:
            parsed = _parsed(form, data)
        except (ValueError, RecursionError) as error:
            boxes.skip(file, f"its boxes cannot be read: {error or 'nested too deeply'}")
            continue
        found += [
            (file, number, form.image(file, each), each) for number, each in enumerate(parsed)
        ]
    by_name = images.find_all(name for _, _, name, _ in found)
    shapes = list[tuple[_ShapePlace, int, Shape]]()
    rows, flags = dict[str, int](), list[list[str]]()
    for file, number, name, content in found:
        image = images.image(name, by_name[name], form.frame(content))
        if not by_name[name].matches and isinstance(content.get("imageData"), str):
            opener: ImageOpener = partial(_open_embedded, root.join(file))
            image = BoxedImage(name, opener, form.frame(content))
        if image.name in rows:
            boxes.skip(file, f"several files are about its image {image.name!r}")
            continue
        rows[image.name] = len(boxes.images)
        boxes.images.append(image)
        marks = content.get("flags")
        flags.append(
            [str(key) for key, is_set in marks.items() if is_set is True]
            if isinstance(marks, dict)
            else []
        )
        listed = content.get(form.items)
        for at, each in enumerate(listed if isinstance(listed, list) else []):
            shape = form.shape(each) if isinstance(each, dict) else Shape("no shape", is_box=False)
            shapes.append((_ShapePlace(file, number, at), rows[image.name], shape))
    categories = sorted({shape.label for _, _, shape in shapes if shape.is_box})
    labels = {name: label for label, name in enumerate(categories)}
    for place, row, shape in within_limits(shapes, options, location):
        label: int | str = labels[shape.label] if shape.is_box else shape.label
        polygons = [shape.corners] if shape.corners else []
        boxes.add(row, str(place.shape + 1), label, shape.sides, polygons, place)
    return _ReadShapes(root, everything, boxes, categories, flags)


def _flagged(location: str, options: DatasetOptions, read: _ReadShapes) -> Dataset:
    """The images as samples, whose labels are the flags that somebody set."""
    names = sorted({flag for flags in read.flags for flag in flags})
    skipped, labelled = [*read.boxes.skipped], list[tuple[BoxedImage, int]]()
    for image, flags in zip(read.boxes.images, read.flags, strict=True):
        if len(flags) == 1:
            labelled.append((image, names.index(flags[0])))
        else:
            reason = f"several flags are set: {', '.join(flags)}" if flags else "no flag is set"
            skipped.append((as_text(image.name), reason))
    return build_images(location, options, names, labelled, "flags", skipped)


def _files(
    form: ShapeFormat, location: str, options: DatasetOptions
) -> tuple[StoredPath, list[str]]:
    """The folder of a dataset, and the files of the split in it."""
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        check_options(options, f"a single file of {form.title}", ("split",))
        return place.parent, [place.name]
    root, *_ = find_folder(place, location, partial(is_of_shapes, form))
    files = [name for name in walk(root) if _is_json(posixpath.basename(name))]
    tops = sorted({name.split("/")[0] for name in files if "/" in name})
    splits = [name for name in tops if name.lower() in SPLIT_NAMES]
    if splits and (len(splits) == len(tops) or options.split is not None):
        chosen = choose_split(splits, options.split, location)
        return root, [name for name in files if name.startswith(f"{chosen}/")]
    if options.split is not None:
        choose_split(splits, options.split, location)
    return root, files


def _parsed(form: ShapeFormat, data: bytes) -> list[Mapping[str, Any]]:
    """The images of a file; raises ValueError where it has none."""
    content = json.loads(without_mark(data))
    every = content if form.is_list else [content]
    if not isinstance(every, list) or not all(isinstance(each, dict) for each in every):
        raise ValueError("it has no image with shapes")
    return every


def _open_embedded(place: StoredPath) -> Any:  # noqa: ANN401 - a binary file
    """The image that a file has in itself, as base64 text."""
    data = read_or_reason(place)
    content = {} if isinstance(data, str) else json.loads(without_mark(data))
    return cell_opener({"bytes": content.get("imageData")}, place.parent, is_base64=True)()


def _revise(
    form: ShapeFormat, location: str, options: DatasetOptions, changes: Mapping[str, str | None]
) -> Revision:
    """The same files but for the shapes that have another class or are gone."""
    read = _read(form, location, options)
    places, unknown = read.boxes.decided(changes)
    decided = dict[str, dict[int, dict[int, str | None]]]()
    for place, label in places:
        decided.setdefault(place.file, {}).setdefault(place.image, {})[place.shape] = label
    changed = {
        file: _edited(form, read_or_reason(read.root.join(file)), of_file)
        for file, of_file in decided.items()
    }
    others = [name for name in read.everything if name not in changed]
    return Revision(read.root, changed, others, unknown)


def _edited(
    form: ShapeFormat, data: bytes | str, decided: Mapping[int, Mapping[int, str | None]]
) -> bytes:
    text = data if isinstance(data, str) else data.decode()
    start = first_character(text)
    starts = [start]
    if form.is_list:
        starts = []
        walk_list(text, start, lambda _, span: starts.append(span[0]))
    edits = list[tuple[int, int, str]]()
    for number, of_image in decided.items():
        spans = _spans(text, starts[number], form.items)
        gone = {shape for shape, label in of_image.items() if label is None}
        edits += removals(spans, gone)
        for shape, label in of_image.items():
            if label is not None:
                begin, end = walk_object(text, spans[shape][0], {})[form.label]
                edits.append((begin, end, json.dumps(label, ensure_ascii=False)))
    return edited(text, edits).encode()


def _spans(text: str, start: int, items: str) -> list[Span]:
    """Where the elements of a list of the object at a place are."""
    spans = list[Span]()
    walk_object(text, start, {items: lambda _, span: spans.append(span)})
    return spans


def _points(value: object) -> list[Sequence[object]]:
    points = value if isinstance(value, list) else []
    return [each if isinstance(each, list) else [] for each in points]


def _of_points(kind: str, label: object, points: Sequence[Sequence[object]]) -> Shape:
    """A shape of a kind, by the points that it is drawn with."""
    if kind not in _SHAPED:
        return Shape(f"it is a shape of the type {kind}, and no box or polygon", is_box=False)
    if not isinstance(label, str) or not label.strip():
        return Shape("it has no category", is_box=False)
    sides = bounds(points)
    if kind == "circle" and len(points) == _CIRCLE and sides:
        (across, down), (x, y) = points
        radius = ((x - across) ** 2 + (y - down) ** 2) ** 0.5  # type: ignore[operator]
        sides = (across - radius, down - radius, across + radius, down + radius)
    corners = [number for point in points for number in point] if kind == "polygon" else []
    return Shape(label, sides, corners)


def _labelme_shape(value: Mapping[str, Any]) -> Shape:
    kind = str(value.get("shape_type") or "polygon")
    return _of_points(kind, value.get("label"), _points(value.get("points")))


def _labelme_image(file: str, content: Mapping[str, Any]) -> str:
    path = content.get("imagePath")
    if not isinstance(path, str) or not path:
        return file[: -len(EXTENSION)]
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), path.replace("\\", "/")))


def _supervisely_shape(value: Mapping[str, Any]) -> Shape:
    points = value.get("points")
    outer = points.get("exterior") if isinstance(points, dict) else None
    kind = str(value.get("geometryType") or "")
    return _of_points(kind, value.get("classTitle"), _points(outer))


def _supervisely_image(file: str, _content: Mapping[str, Any]) -> str:
    """`ds0/ann/a.png.json` is about `ds0/img/a.png`."""
    return re.sub(r"(^|/)ann/([^/]*)$", r"\1img/\2", file)[: -len(EXTENSION)]


def _supervisely_frame(content: Mapping[str, Any]) -> tuple[float, float] | None:
    size = content.get("size")
    return frame_of(size.get("width"), size.get("height")) if isinstance(size, dict) else None


def _createml_shape(value: Mapping[str, Any]) -> Shape:
    at = value.get("coordinates")
    at = at if isinstance(at, dict) else {}
    numbers = [at.get(name) for name in ("x", "y", "width", "height")]
    known = [each for each in numbers if isinstance(each, int | float)]
    label = value.get("label")
    if len(known) < len(numbers):
        return Shape("its box is not four numbers", is_box=False)
    if not isinstance(label, str) or not label.strip():
        return Shape("it has no category", is_box=False)
    x, y, width, height = map(float, known)
    return Shape(label, (x - width / 2, y - height / 2, x + width / 2, y + height / 2))


def _createml_image(_file: str, content: Mapping[str, Any]) -> str:
    return str(content.get("image") or content.get("imagefilename") or "")


def _has(*texts: bytes) -> Callable[[bytes], bool]:
    return lambda head: all(text in head for text in texts)


def _is_labelme(head: bytes) -> bool:
    others = (b'"imagePath"', b'"shape_type"', b'"imageData"')
    return b'"shapes"' in head and any(each in head for each in others)


def _is_createml(head: bytes) -> bool:
    is_list = re.match(rb"(?:\xef\xbb\xbf)?\s*\[", head) is not None
    return is_list and b'"annotations"' in head and b'"coordinates"' in head


LABELME = ShapeFormat(
    "LabelMe",
    _is_labelme,
    frozenset(("annotations", "annotation", "labels", "label", "json", "jsons", "labelme")),
    "shapes",
    "label",
    _labelme_image,
    lambda content: frame_of(content.get("imageWidth"), content.get("imageHeight")),
    _labelme_shape,
)
SUPERVISELY = ShapeFormat(
    "Supervisely",
    _has(b'"objects"', b'"size"', b'"classTitle"'),
    frozenset(("ann",)),
    "objects",
    "classTitle",
    _supervisely_image,
    _supervisely_frame,
    _supervisely_shape,
    project="meta.json",
)
CREATEML = ShapeFormat(
    "CreateML",
    _is_createml,
    frozenset(("annotations", "labels")),
    "annotations",
    "label",
    _createml_image,
    lambda _: None,
    _createml_shape,
    is_list=True,
)
