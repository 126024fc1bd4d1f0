"""COCO: boxes in a JSON file with the keys images, annotations and categories.

The name of a box is the id of its annotation. The images are found beside the file, in `images`, in
a folder of the split, or in one of these beside the folder of the file. Elements of the lists are
parsed one at a time, because outlines take many times the memory of boxes, and what is written back
is the same text but for the annotations that somebody decided about.
"""

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.image_openers import cell_opener
from difficulty_service.datasets.listing import check_options
from difficulty_service.datasets.objects.boxes import (
    MOST_BYTES,
    BoxedImage,
    Boxes,
    build_boxes,
    distinct_names,
    edited,
    frame_of,
    new_names,
)
from difficulty_service.datasets.objects.files import above_both, below, nested, walk
from difficulty_service.datasets.objects.json_text import (
    Span,
    Take,
    TextEdit,
    first_character,
    parsing,
    read_text,
    removals,
    walk_object,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision
from difficulty_service.datasets.splits import SPLIT_NAMES, choose_split
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    is_uri,
    list_folder,
    open_file,
    reading,
    resolve,
)
from difficulty_service.datasets.table_files import require_rows

EXTENSION = ".json"
ANNOTATIONS = "annotations"
LISTS = ("images", "annotations", "categories")

_HEAD = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(info|licenses|type|videos|images|annotations|categories)"'
)
_HEAD_BYTES = 256
_SAME_IMAGES = ("captions_", "person_keypoints_", "stuff_", "panoptic_")
"""What names of files with other annotations of the same images begin with."""

_LOOKED_AT = 100
_MOST_LIMITED = 1 << 29  # of whoever is not trusted; the largest file of COCO has 470 MB
_TRIED = 5
"""Number of images by which their folder is found."""


def is_coco_file(place: StoredPath) -> bool:
    """Whether a file begins as one of COCO does."""
    if not place.name.lower().endswith(EXTENSION):
        return False
    try:
        with open_file(place) as file:
            return _HEAD.match(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def is_coco(place: StoredPath, entries: list[Entry]) -> bool:
    """Whether a folder holds such a file, in `annotations` or in a folder for each split."""
    return bool(_find_files(place, entries))


def _find_files(place: StoredPath, entries: list[Entry]) -> dict[str, StoredPath]:
    """The files of the splits below a folder, by what the split is called."""
    found = _files_in(place, entries)
    for name, is_dir, _ in sorted(entries):
        # Of other folders there may be thousands, one for each class.
        if not is_dir or name.lower() not in {ANNOTATIONS, *SPLIT_NAMES}:
            continue
        below = place.join(name)
        try:
            files = _files_in(below, list_folder(below))
        except OSError:
            continue
        if name.lower() == ANNOTATIONS:
            found |= files
        elif len(files) == 1:
            found[name] = next(iter(files.values()))
    return found


def _files_in(place: StoredPath, entries: list[Entry]) -> dict[str, StoredPath]:
    names = [
        name
        for name, is_dir, _ in sorted(entries)
        if not is_dir and name.lower().endswith(EXTENSION) and not name.startswith(".")
    ]
    if any(name.startswith("instances_") for name in names):
        names = [name for name in names if not name.startswith(_SAME_IMAGES)]
    places = [place.join(name) for name in names[:_LOOKED_AT]]
    return {_split_of(each.name): each for each in places if is_coco_file(each)}


def _split_of(name: str) -> str:
    """The split in the name of a file, such as `val2017` in `instances_val2017.json`."""
    return name.removesuffix(EXTENSION).removeprefix("instances_")


@dataclass
class CocoText:
    """What a file says, and where its text says so.

    Attributes:
        keeps_outlines: Whether outlines are read, which are most of the file.
        lists: Where each of LISTS begins and ends.
        categories: Ids and names in the order of the ids.
        annotations: Of each annotation its id, the id of its image, that of its category, the
            box, and the outline; in the order of the file, as everything else.
        spans: Where each annotation begins and ends.
        image_spans: The same of each image.
    """

    text: str
    keeps_outlines: bool = False
    lists: dict[str, Span] = field(default_factory=dict)
    images: list[Mapping[str, Any]] = field(default_factory=list)
    categories: list[tuple[Any, str]] = field(default_factory=list)
    annotations: list[tuple[Any, Any, Any, Any, Any]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    image_spans: list[Span] = field(default_factory=list)


def open_coco(location: str, options: DatasetOptions) -> Dataset:
    """Opens a file of annotations, or the folder that holds one for each split."""
    check_options(options, "boxes in COCO's format")
    place, root = _choose_file(location, options)
    most = MOST_BYTES if options.limits is None else _MOST_LIMITED
    read = read_coco(place, location, most, keeps_outlines=options.outlines)
    if options.limits is not None:
        require_rows(len(read.annotations), options.limits, repr(location))
    boxes, _ = _boxes(read, place)
    names = [name for _, name in read.categories]
    return build_boxes(location, options, names, boxes, partial(_revise, place, root))


def _choose_file(location: str, options: DatasetOptions) -> tuple[StoredPath, StoredPath | None]:
    """The file of annotations, and the folder of the dataset where that is named."""
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        check_options(options, "a single file of annotations", ("split",))
        return place, None
    with reading(repr(location), "listed"):
        found = ((root, _find_files(root, entries)) for root, entries in nested(place))
        root, files = next(each for each in found if each[1])
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
        raise DatasetError(
            f"{place.name!r} has no list of {' and of '.join(missing)}",
            "name a file with the boxes of objects, such as instances_train2017.json",
            parameter="location",
        )
    read.categories.sort(key=lambda each: (isinstance(each[0], str), each[0]))
    return read


def _scan(read: CocoText) -> None:
    """Reads the lists of the outermost object, an element at a time."""
    take: dict[str, Take] = {
        "images": partial(_take_image, read),
        "categories": lambda value, _: read.categories.append(_category(value)),
        "annotations": partial(_take_annotation, read),
    }
    read.lists = {
        name: span
        for name, span in walk_object(read.text, first_character(read.text), take).items()
        if name in LISTS and read.text[span[0]] == "["
    }


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
    known = [value.get(name) for name in ("id", "image_id", "category_id", "bbox")]
    read.annotations.append((known[0], known[1], known[2], known[3], outline))
    read.spans.append(span)


def _boxes(read: CocoText, place: StoredPath) -> tuple[Boxes, dict[str, int]]:
    """The boxes of a file, and which annotation each of them is, by its id."""
    boxes, numbers = Boxes(), list[int]()
    rows = _add_images(boxes, read, find_images(place, read))
    labels = {key: label for label, (key, _) in enumerate(read.categories)}
    for number, (key, image, category, box, outline) in enumerate(read.annotations):
        name = _key(key)
        known = rows.get(_key(image))
        if known is None:
            reason = "it has no image" if image is None else f"there is no image {image!r}"
            boxes.skip(f"annotation {number if name is None else name}", reason)
            continue
        label: int | str = labels.get(_key(category), f"there is no category {category!r}")
        if name is None:
            label = "it has no id"
        boxes.add(
            known,
            f"#{number}" if name is None else str(name),
            label,
            _sides(box),
            _polygons(outline),
        )
        numbers += [number] * (len(boxes.rows) - len(numbers))
    return boxes, dict(zip(boxes.ids(), numbers, strict=True))


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


def find_images(place: StoredPath, read: CocoText) -> StoredPath:
    """The folder that the names of images are relative to; that of the file where none is there."""
    names = map(name_of_file, read.images)
    here, split = place.parent, _split_of(place.name)
    folders = (here, here.parent)
    candidates = [
        here,
        *(above.join(below) for above in folders for below in (split, f"images/{split}")),
        *(above.join(below) for above in folders for below in ("images", "data")),
        here.parent,
        here.parent.join(f"{split}/images"),
    ]
    looked_for = [name for name in names if name is not None and not is_uri(name)][:_TRIED]
    for folder in candidates:
        if any(_is_file(folder.join(name)) for name in looked_for):
            return folder
    return here


def _is_file(place: StoredPath) -> bool:
    try:
        return is_folder(place, place.name) is False
    except DatasetError:  # outside of the boundary
        return False


def _add_images(boxes: Boxes, read: CocoText, folder: StoredPath) -> dict[object, int]:
    """Adds the images of a file; the place of each by its id."""
    rows = dict[object, int]()
    sizes = _sizes(folder, {posixpath.dirname(name_of_file(image) or "") for image in read.images})
    for image in read.images:
        key, name = _key(image.get("id")), name_of_file(image)
        if key is None or name is None or key in rows:
            reason = "another image has its id" if key in rows else "it has no id or no file_name"
            boxes.skip(f"image {name or key}", reason)
            continue
        rows[key] = len(boxes.images)
        frame = frame_of(image.get("width"), image.get("height"))
        boxes.images.append(
            BoxedImage(
                name, cell_opener(name, folder), frame, sizes.get(posixpath.normpath(name), 0)
            )
        )
    return rows


def _sizes(folder: StoredPath, below: set[str]) -> dict[str, int]:
    """Bytes of each file in some folders below a folder, by its path there."""
    sizes = dict[str, int]()
    for name in below:
        try:
            entries = list_folder(folder.join(name)) if not is_uri(name) else []
        except OSError:  # the reason follows where an image is opened
            continue
        sizes |= {posixpath.normpath(posixpath.join(name, file)): size for file, _, size in entries}
    return sizes


def _revise(
    place: StoredPath, root: StoredPath | None, changes: Mapping[str, str | None]
) -> Revision:
    """The same text but for the annotations that have another category or are gone."""
    read = read_coco(place, place.name)
    numbers = _boxes(read, place)[1]
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
    for sample_id, label in changes.items():
        number = numbers.get(sample_id)
        if number is None:
            continue
        if label is None:
            removed.add(number)
        else:
            start, end = walk_object(read.text, read.spans[number][0], {})["category_id"]
            edits.append((start, end, json.dumps(keys[label])))
    edits += removals(read.spans, removed)
    images = find_images(place, read)
    if root is None:
        root = above_both(place.parent, images)
        names = [name_of_file(image) or "" for image in read.images]
        files = [below(root, images.join(name)) for name in names if _is_file(images.join(name))]
    else:
        files = list(walk(root))
    path = below(root, place)
    return Revision(
        root,
        {path: edited(read.text, edits).encode()},
        [file for file in dict.fromkeys(files) if file not in {"", path}],
        [name for name in changes if name not in numbers],
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
