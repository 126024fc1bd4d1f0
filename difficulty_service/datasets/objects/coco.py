"""COCO: boxes in a JSON file with the keys images, annotations and categories.

The name of a box is the id of its annotation, or its place in the list, counted from 1, where none
has an id. The images are found beside the file, in `images`, in a folder of the split, or in one of
these beside the folder of the file. Elements of the lists are parsed one at a time, because
outlines take many times the memory of boxes, and what is written back is the same text but for the
annotations that somebody decided about.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import count_of
from difficulty_service.datasets.json_spans import (
    Span,
    Take,
    TextEdit,
    first_character,
    parsing,
    removals,
    walk_object,
)
from difficulty_service.datasets.listing import check_options
from difficulty_service.datasets.objects.boxes import (
    MOST_BYTES,
    Boxes,
    bounds,
    build_boxes,
    distinct_names,
    edited,
    frame_of,
    new_names,
    once_each,
)
from difficulty_service.datasets.objects.coco_files import LISTS, find_files
from difficulty_service.datasets.objects.coco_images import CocoImages, find_images
from difficulty_service.datasets.objects.files import (
    above_both,
    below,
    find_folder,
    read_text,
    walk,
)
from difficulty_service.datasets.objects.whole_images import open_labels
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import StoredPath, is_folder, resolve
from difficulty_service.datasets.table_files import require_rows

_MOST_LIMITED = 1 << 29  # of whoever is not trusted; the largest file of COCO has 470 MB
_CONTRIBUTOR = "Label Studio"
"""Whose exports state the size of a photograph as it is stored, with boxes of the upright one."""

NO_BOX = ()
"""In place of the box of an annotation that has none."""

_SHAPES = ("bbox", "segmentation", "keypoints")

_BEYOND = 0.01
"""Share of a side up to which a box that is drawn by hand sticks out of its image."""


@dataclass
class CocoText:
    """What a file says, and where its text says so.

    Attributes:
        keeps_outlines: Whether outlines are read, which are most of the file.
        lists: Where each of LISTS begins and ends.
        categories: Ids and names in the order of the ids.
        annotations: Of each annotation its id, the id of its image, that of its category, the
            box, and the outline; in the order of the file, as everything else. Their places
            stand for ids where no annotation has one.
        spans: Where each annotation begins and ends.
        image_spans: The same of each image.
        has_upright_boxes: Whether boxes are of upright photographs, whatever their sizes say.
        has_shapes: Whether an annotation has a box or another shape, even an empty one.
    """

    text: str
    keeps_outlines: bool = False
    lists: dict[str, Span] = field(default_factory=dict)
    images: list[Mapping[str, Any]] = field(default_factory=list)
    categories: list[tuple[Any, str]] = field(default_factory=list)
    annotations: list[tuple[Any, Any, Any, Any, Any]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    image_spans: list[Span] = field(default_factory=list)
    has_upright_boxes: bool = False
    has_shapes: bool = False


def open_coco(location: str, options: DatasetOptions) -> Dataset:
    """Opens a file of annotations, or the folder that holds one for each split."""
    check_options(options, "boxes in COCO's format")
    place, root = _choose_file(location, options)
    most = MOST_BYTES if options.limits is None else _MOST_LIMITED
    read = read_coco(place, location, most, keeps_outlines=options.outlines)
    if options.limits is not None:
        require_rows(len(read.annotations), options.limits, repr(location))
    found = _find_images(read, place, root)
    names = [name for _, name in read.categories]
    if read.annotations and not read.has_shapes and not options.outlines:
        return _labels(location, options, read, found)
    boxes, notes = _boxes(read, found)
    return build_boxes(location, options, names, boxes, partial(_revise, place, root), notes)


def _find_images(read: CocoText, place: StoredPath, root: StoredPath | None) -> CocoImages:
    names = map(name_of_file, read.images)
    return find_images(place, root, [name for name in names if name is not None])


def _choose_file(location: str, options: DatasetOptions) -> tuple[StoredPath, StoredPath | None]:
    """The file of annotations, and the folder of the dataset where that is named."""
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        check_options(options, "a single file of annotations", ("split",))
        return place, None
    root, _, files = find_folder(place, location, find_files)
    return files[choose_split(list(files), options.split, location)], root


def read_coco(
    place: StoredPath,
    location: str,
    most_bytes: int = MOST_BYTES,
    *,
    keeps_outlines: bool = False,
) -> CocoText:
    """Parses a file; raises DatasetError where it is no JSON or not of this format."""
    read = CocoText(read_text(place, location, most_bytes), keeps_outlines)
    with parsing(place):
        _scan(read)
    missing = [name for name in LISTS if name not in read.lists]
    if missing:
        raise DatasetError.of_location(
            f"{place.name!r} has no list of {' and of '.join(missing)}",
            "name a file with the boxes of objects, such as instances_train2017.json",
        )
    if all(key is None for key, *_ in read.annotations):
        read.annotations = [(place, *rest) for place, (_, *rest) in enumerate(read.annotations, 1)]
    read.categories.sort(key=lambda each: (isinstance(each[0], str), each[0]))
    return read


def _scan(read: CocoText) -> None:
    """Reads the lists of the outermost object, an element at a time."""
    take: dict[str, Take] = {
        "images": partial(_take_image, read),
        "categories": lambda value, _: read.categories.append(_category(value)),
        "annotations": partial(_take_annotation, read),
    }
    members = walk_object(read.text, first_character(read.text), take)
    read.lists = {
        name: span for name, span in members.items() if name in LISTS and read.text[span[0]] == "["
    }
    start, end = members.get("info", (0, 0))
    info = json.loads(read.text[start:end] or "null")
    read.has_upright_boxes = isinstance(info, dict) and info.get("contributor") == _CONTRIBUTOR


def _category(value: Mapping[str, Any]) -> tuple[Any, str]:
    number = value.get("id")
    if not isinstance(number, int | str):
        raise ValueError(f"a category has the id {number!r}")  # noqa: TRY004
    return number, str(value.get("name", number))


def _take_image(read: CocoText, value: Mapping[str, Any], span: Span) -> None:
    read.images.append(value)
    read.image_spans.append(span)


def _take_annotation(read: CocoText, value: Mapping[str, Any], span: Span) -> None:
    outline = value.get("segmentation") if read.keeps_outlines else None
    known = [value.get(name) for name in ("id", "image_id", "category_id")]
    box = value.get("bbox", NO_BOX)
    if box == NO_BOX:
        box = _around(value.get("segmentation"))
    read.has_shapes |= box != NO_BOX or any(map(value.__contains__, _SHAPES))
    read.annotations.append((known[0], known[1], known[2], box, outline))
    read.spans.append(span)


def _around(outline: object) -> object:
    """The box around the polygons of an annotation that has no box."""
    numbers = [number for polygon in _polygons(outline) for number in polygon]
    sides = bounds(list(zip(numbers[::2], numbers[1::2], strict=False)))
    if not sides:
        return NO_BOX
    left, top, right, bottom = sides
    return [left, top, right - left, bottom - top]  # type: ignore[operator]


def _labels(location: str, options: DatasetOptions, read: CocoText, images: CocoImages) -> Dataset:
    """The images as samples, where no annotation has a box."""
    boxes = Boxes()
    rows, problems = _add_images(boxes, read, images)
    labels = {key: label for label, (key, _) in enumerate(read.categories)}
    pairs = list[tuple[int, int]]()
    for number, (key, image, category, *_) in enumerate(read.annotations):
        row, label = rows.get(_key(image)), labels.get(_key(category))
        if row is None or label is None:
            missing = f"there is no image {image!r}" if row is None else _no_category(category)
            boxes.skip(f"annotation {number if key is None else key}", missing)
        else:
            pairs.append((row, label))
    for key, reason in problems.items():
        boxes.skip(f"image {key}", reason)
    names = [name for _, name in read.categories]
    return open_labels(location, options, boxes.images, names, pairs, boxes.skipped)


def _no_category(category: object) -> str:
    return f"there is no category {category!r}"


def _boxes(read: CocoText, images: CocoImages) -> tuple[Boxes, list[str]]:
    """The boxes of a file, in the places of their annotations, and what to know of them."""
    boxes, bare = Boxes(), 0
    rows, problems = _add_images(boxes, read, images)
    labels = {key: label for label, (key, _) in enumerate(read.categories)}
    for number, (key, image, category, box, outline) in enumerate(read.annotations):
        name = _key(key)
        known = rows.get(_key(image))
        if known is None:
            reason = "it has no image" if image is None else f"there is no image {image!r}"
            reason = problems.get(_key(image), reason)
            boxes.skip(f"annotation {number if name is None else name}", reason)
            continue
        if box == NO_BOX:
            bare += 1
            continue
        label: int | str = labels.get(_key(category), _no_category(category))
        if name is None:
            label = "it has no id"
        boxes.add(
            known,
            f"#{number}" if name is None else str(name),
            label,
            _sides(box),
            _polygons(outline),
            number,
        )
    turned = _turn(boxes, everywhere=read.has_upright_boxes)
    notes = [f"{count_of(turned, 'image')} with boxes of another size: read as upright"]
    notes = notes if turned else []
    if bare:
        notes.append(f"{count_of(bare, 'annotation')} without a box, which say nothing of objects")
    return boxes, notes


def _turn(boxes: Boxes, *, everywhere: bool) -> int:
    """Marks images whose boxes are of the upright photograph; the number of those that show it.

    Their boxes lie beyond the size that is stated, and within the one with swapped sides.
    """
    ends = dict[int, tuple[float, float]]()
    for row, (_, _, right, bottom) in zip(boxes.rows, boxes.sides, strict=True):
        before = ends.get(row, (0.0, 0.0))
        ends[row] = max(before[0], right), max(before[1], bottom)
    shown = {row for row, end in ends.items() if _is_beyond(boxes.images[row].frame, end)}
    for row in range(len(boxes.images)) if everywhere else shown:
        boxes.images[row] = replace(boxes.images[row], is_upright=True)
    return len(shown)


def _is_beyond(frame: tuple[float, float] | None, end: tuple[float, float]) -> bool:
    """Whether boxes end beyond the sides of a size, and within them once they are swapped."""
    if frame is None:
        return False
    width, height = (side * (1 + _BEYOND) + 1 for side in frame)
    return (end[0] > width or end[1] > height) and end[0] <= height and end[1] <= width


def _polygons(outline: object) -> Sequence[Sequence[object]]:
    """The polygons of an outline, which may also be a mask of pixels: none of it."""
    if not isinstance(outline, list) or not all(isinstance(each, list) for each in outline):
        return ()
    return outline


def _sides(box: object) -> Sequence[object]:
    """Left, top, right and bottom, of a box that also says its width and height."""
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):  # noqa: PLR2004
        return ()
    try:
        left, top, width, height = map(float, box)
    except OverflowError:
        return ()
    return left, top, left + width, top + height


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _key(value: object) -> object:
    """An id that can be looked up; None for a value that cannot be one."""
    return value if isinstance(value, int | float | str) else None


def name_of_file(image: Mapping[str, Any]) -> str | None:
    """The name of the file of an image; None where it has none."""
    name = image.get("file_name")
    try:
        return name if isinstance(name, str) and name and name.encode() else None
    except UnicodeEncodeError:  # half of a surrogate pair, which no file is called
        return None


def _add_images(
    boxes: Boxes, read: CocoText, images: CocoImages
) -> tuple[dict[object, int], dict[object, str]]:
    """Adds the images of a file; the place of each by its id, or why it has none."""
    rows, problems = dict[object, int](), dict[object, str]()
    boxed = {_key(image) for _, image, *_ in read.annotations}
    names = [name_of_file(image) for image in read.images]
    is_kept, several = once_each(names, [_key(image.get("id")) in boxed for image in read.images])
    for image, name, kept in zip(read.images, names, is_kept, strict=True):
        key = _key(image.get("id"))
        if key is None or name is None or key in rows or key in problems:
            taken = key is not None and (key in rows or key in problems)
            reason = "another image has its id" if taken else "it has no id or no file_name"
            boxes.skip(f"image {name or key}", reason)
        elif name in several:
            problems[key] = f"several images of the file are called {name!r}"
        elif kept:
            rows[key] = len(boxes.images)
            frame = frame_of(image.get("width"), image.get("height"))
            boxes.images.append(images.image(name, frame))
    return rows, problems


def _revise(
    place: StoredPath, root: StoredPath | None, changes: Mapping[str, str | None]
) -> Revision:
    """The same text but for the annotations that have another category or are gone."""
    read = read_coco(place, place.name)
    images = _find_images(read, place, root)
    numbers, unknown = _boxes(read, images)[0].decided(changes)
    keys = dict(
        zip(
            distinct_names([name for _, name in read.categories]),
            (key for key, _ in read.categories),
            strict=True,
        )
    )
    edits, added = _new_categories(read, new_names(changes, keys))
    keys |= added
    removed = set[int]()
    for number, label in numbers:
        if label is None:
            removed.add(number)
        else:
            start, end = walk_object(read.text, read.spans[number][0], {})["category_id"]
            edits.append((start, end, json.dumps(keys[label])))
    edits += removals(read.spans, removed)
    if root is None:
        names = [name_of_file(image) or "" for image in read.images]
        places = [found for name in names if (found := images.place(name)) is not None]
        root = above_both(place.parent, images.folder)
        if images.search is not None:
            root = above_both(root, images.search.root)
        files = [below(root, found) for found in places]
    else:
        files = list(walk(root))
    path = below(root, place)
    return Revision(
        root,
        {path: edited(read.text, edits).encode()},
        [file for file in dict.fromkeys(files) if file not in {"", path}],
        unknown,
        is_one_file=True,
    )


def _new_categories(
    read: CocoText, names: Sequence[str]
) -> tuple[list[TextEdit], dict[str, object]]:
    """Adds categories at the end of their list; the id of each by its name."""
    if not names:
        return [], {}
    start, end = read.lists["categories"]
    numbers = [key for key, _ in read.categories if isinstance(key, int)]
    first = max(numbers, default=0) + 1
    added = dict(zip(names, range(first, first + len(names)), strict=True))
    texts = [
        json.dumps({"id": key, "name": name}, ensure_ascii=False) for name, key in added.items()
    ]
    inside = read.text[start + 1 : end - 1].rstrip()
    at = start + 1 + len(inside)
    return [(at, at, (", " if inside else "") + ", ".join(texts))], dict(added)
