"""Pascal VOC: an XML file for each image, in `Annotations` or beside the images.

The name of a box is the number of its object in the file, counted from 1. `ImageSets/Main` lists
the images of each split. The corners are pixels that are counted from 1 and belong to the box.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from xml.parsers import expat

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.annotation_files import HEAD_BYTES, title_of_annotations
from difficulty_service.datasets.image_openers import has_image_extension, open_image, refusing
from difficulty_service.datasets.json_spans import Span
from difficulty_service.datasets.listing import as_text, check_options
from difficulty_service.datasets.objects.boxes import (
    BoxedImage,
    Boxes,
    build_boxes,
    edited,
    once_each,
)
from difficulty_service.datasets.objects.files import find_folder, read_files, walk
from difficulty_service.datasets.objects.voc_lists import Stems, find_lists, read_list
from difficulty_service.datasets.objects.xml_text import XmlReader, as_content, without
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision, Skipped
from difficulty_service.datasets.splits import SPLIT_NAMES, choose_split
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    list_folder,
    open_file,
    resolve,
)
from difficulty_service.datasets.table_files import require_rows

EXTENSION = ".xml"
ANNOTATIONS = "Annotations"
IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "data")
SIDES = ("xmin", "ymin", "xmax", "ymax")

_ANNOTATION_FOLDERS = (ANNOTATIONS.lower(), "labels")
_ROOT = re.compile(rb"<annotation[\s/>]")
_ROOT_BYTES = 1024
_BOX = b"<bndbox>"
_LOOKED_AT = 20


def is_voc(place: StoredPath, entries: list[Entry]) -> bool:
    """Whether a folder has annotations of images in XML files, also in a folder for each split."""
    folders = [name for name, is_dir, _ in entries if is_dir]
    likely = [name for name in folders if name.lower() in _ANNOTATION_FOLDERS]
    likely += [name for name in folders if name.lower() in SPLIT_NAMES]
    try:
        return _has_annotation(place, entries) or any(
            _has_annotation(place.join(name), list_folder(place.join(name)), levels=1)
            for name in likely
        )
    except OSError:
        return False


def _has_annotation(place: StoredPath, entries: list[Entry], levels: int = 0) -> bool:
    """Whether a folder has a file of annotations, or a folder in it, some levels deep.

    Of other programs' files that begin alike, those about images without objects do not tell.
    """
    files = [name for name, is_dir, _ in entries if not is_dir and name.lower().endswith(EXTENSION)]
    is_it = None
    for name in sorted(files)[:_LOOKED_AT]:
        with open_file(place.join(name)) as file:
            head = file.read(HEAD_BYTES)
        if not _ROOT.search(head[:_ROOT_BYTES]):
            continue
        if _BOX in head:
            return True
        is_it = is_it is not False and title_of_annotations(head) is None
    if is_it:
        return True
    folders = [place.join(name) for name, is_dir, _ in sorted(entries) if is_dir and levels]
    return any(
        _has_annotation(each, list_folder(each), levels - 1) for each in folders[:_LOOKED_AT]
    )


@dataclass(frozen=True)
class VocSplit:
    """The files of annotations of a split, and all files, by paths below the root.

    Attributes:
        images: Bytes of each image.
        bare: Images without annotations of a list; None where those in the folders of images are.
        skipped: What a list names and is not there.
    """

    root: StoredPath
    files: Sequence[str]
    images: Mapping[str, int]
    everything: Sequence[str]
    bare: Collection[str] | None = None
    skipped: Sequence[Skipped] = ()


@dataclass
class VocObject:
    """An object of a file.

    Attributes:
        name: Its category; None where the file does not say it.
        sides: Left, top, right and bottom, as texts.
        span: Where the element is in the bytes of the file.
        name_span: Where the text of its category is.
    """

    span: Span
    name: str | None = None
    name_span: Span | None = None
    sides: dict[str, str] | None = None


@dataclass(frozen=True)
class VocFile:
    """What a file says: the name of its image, its size, and the objects."""

    image: str
    size: tuple[float, float] | None
    objects: Sequence[VocObject]


def open_voc(location: str, options: DatasetOptions) -> Dataset:
    """Opens the folder of a dataset; all its files, or those of a split."""
    check_options(options, "boxes in Pascal VOC's format")
    split = find_split(location, options)
    boxes, names = Boxes(), list[str]()
    for name, reason in split.skipped:
        boxes.skip(name, reason)
    number, read, seen = 0, list[_ReadFile](), set[str]()
    for each in _read(split):
        if each.image is not None:
            seen.add(each.image)
        if isinstance(each.content, str):
            boxes.skip(each.file, each.content)
            continue
        read.append(replace(each, data=b""))
        number += len(each.content.objects)
        if options.limits is not None:
            require_rows(number, options.limits, repr(location))
    objects = list[tuple[int, int, VocObject]]()
    is_kept, several = _once_each(read)
    for each, kept in zip(read, is_kept, strict=True):
        if each.name in several:
            boxes.skip(each.file, f"several files are about its image {each.name!r}")
        if not kept or isinstance(each.content, str):
            continue
        boxes.images.append(_boxed(each, each.content, split))
        row = len(boxes.images) - 1
        objects += [(row, number, found) for number, found in enumerate(each.content.objects, 1)]
        names += [found.name for found in each.content.objects if found.name]
    for image in _bare(split, seen):
        opener = partial(open_image, split.root.join(image))
        boxes.images.append(BoxedImage(image, opener, None, split.images[image]))
    categories = sorted(set(names))
    labels: dict[str | None, int | str] = {name: label for label, name in enumerate(categories)}
    labels[None] = "it has no category"
    for row, number, found in objects:
        boxes.add(row, str(number), labels[found.name], _sides(found))
    return build_boxes(location, options, categories, boxes, partial(_revise, location, options))


def _boxed(each: "_ReadFile", content: VocFile, split: VocSplit) -> BoxedImage:
    named = content.image
    missing = f"no image of this name: {named!r}" if named else "no image"
    opener = (
        refusing(missing)
        if each.image is None
        else partial(open_image, split.root.join(each.image))
    )
    return BoxedImage(each.name, opener, content.size, split.images.get(each.image or "", 0))


def _bare(split: VocSplit, seen: Collection[str]) -> list[str]:
    """Images without annotations, which some tools write of those that have no box."""
    if split.bare is not None:
        return sorted(split.bare)
    # Elsewhere are masks of segments, and other pictures that are made of the images.
    folders = {posixpath.dirname(image) for image in seen}
    usual = {name.lower() for name in IMAGE_FOLDERS}
    return [
        image
        for image in split.images
        if image not in seen
        and (
            posixpath.dirname(image) in folders
            or not usual.isdisjoint(posixpath.dirname(image).lower().split("/"))
        )
    ]


@dataclass(frozen=True)
class _ReadFile:
    """A file of annotations and its image.

    Attributes:
        image: Path of its image; None where there is none.
        content: What it says, or the reason why it cannot be read.
    """

    file: str
    data: bytes
    image: str | None
    content: VocFile | str

    @property
    def name(self) -> str:
        """What the ids of its boxes begin with."""
        named = "" if isinstance(self.content, str) else self.content.image
        return self.image or named or self.file


def _read(split: VocSplit) -> Iterator[_ReadFile]:
    by_stem = {posixpath.splitext(image)[0]: image for image in split.images}
    contents = read_files([split.root.join(file) for file in split.files])
    for file, data in zip(split.files, contents, strict=True):
        if isinstance(data, str):
            yield _ReadFile(file, b"", None, f"its boxes cannot be read: the file {data}")
            continue
        content = parse(data)
        named = "" if isinstance(content, str) else content.image
        image = _find_image(file, named, split.images, by_stem)
        yield _ReadFile(file, data, image, content)


def _once_each(read: Sequence[_ReadFile]) -> tuple[list[bool], frozenset[str]]:
    """Which of some files are read, and the images that several with objects are about."""
    boxed = [not isinstance(each.content, str) and bool(each.content.objects) for each in read]
    return once_each([each.name for each in read], boxed)


def find_split(location: str, options: DatasetOptions) -> VocSplit:
    """The files of a dataset, or of a split of it."""
    place = resolve(location, options.boundary)
    root, *_ = find_folder(place, location, is_voc)
    everything = walk(root)
    images = {name: size for name, size in everything.items() if has_image_extension(name)}
    files = [name for name in everything if name.lower().endswith(EXTENSION)]
    folders = sorted({name.split("/")[0] for name in files if "/" in name})
    if folders and all(name.lower() in SPLIT_NAMES for name in folders):
        chosen = choose_split(folders, options.split, location)
        files = [name for name in files if name.startswith(f"{chosen}/")]
        images = {name: size for name, size in images.items() if name.startswith(f"{chosen}/")}
    elif options.split is not None:
        split = VocSplit(root, files, images, list(everything))
        return _listed(split, location, options.split)
    if not files:
        raise DatasetError.of_location(f"{location!r} has no annotations in XML files")
    return VocSplit(root, files, images, list(everything))


def _listed(split: VocSplit, location: str, chosen: str) -> VocSplit:
    """The files that the list of a split names, and its images without any."""
    annotations = Stems(split.files, _ANNOTATION_FOLDERS)
    images = Stems(split.images, IMAGE_FOLDERS)
    lists = find_lists(split.root, split.everything, annotations)
    if not lists:
        raise DatasetError.leave_out(
            f"{location!r} has no lists of splits in ImageSets/Main", "split"
        )
    file = lists[choose_split(sorted(lists), chosen, location)]
    found, bare, skipped = read_list(split.root, file, annotations, images)
    files = [name for name in split.files if name in found]
    if not files:
        raise DatasetError(
            f"no image in {file!r} of {location!r} has annotations",
            "leave out ",
            Setting("split"),
            " to read all images",
            parameter="split",
        )
    return replace(split, files=files, bare=bare, skipped=skipped)


def _find_image(
    file: str, name: str, images: Mapping[str, int], by_stem: Mapping[str, str]
) -> str | None:
    """The image of a file of annotations: by the name in it, or that of the file."""
    folder, stem = posixpath.dirname(file), posixpath.basename(file)[: -len(EXTENSION)]
    above, last = posixpath.split(folder)
    beside = [folder]
    if last.lower() in _ANNOTATION_FOLDERS:
        beside = [*(posixpath.join(above, each) for each in IMAGE_FOLDERS), above, folder]
    elif f"/{ANNOTATIONS.lower()}/" in f"/{folder.lower()}/":
        parts = folder.split("/")
        place = [part.lower() for part in parts].index(ANNOTATIONS.lower())
        beside = ["/".join([*parts[:place], each, *parts[place + 1 :]]) for each in IMAGE_FOLDERS]
    last_name = posixpath.basename(name.replace("\\", "/"))
    for each in beside:
        path = posixpath.normpath(posixpath.join(each, last_name)) if last_name else ""
        if path in images:
            return path
        if (path := posixpath.join(each, stem)) in by_stem:
            return by_stem[path]
    return None


def _sides(each: VocObject) -> Sequence[object]:
    try:
        left, top, right, bottom = (float((each.sides or {})[name]) for name in SIDES)
    except (KeyError, ValueError):
        return ()
    # The corner that is counted from 1 begins at 0; many programs count from 0 all the same.
    return (
        max(left - 1, 0.0) if left >= 0 else left,
        max(top - 1, 0.0) if top >= 0 else top,
        right,
        bottom,
    )


def parse(data: bytes) -> VocFile | str:
    """What the bytes of a file say, or the reason why they cannot be read."""
    reader = _Reader(data)
    try:
        reader.read()
    except (expat.ExpatError, ValueError) as error:
        return f"its boxes cannot be read: {error}"
    size = tuple(map(_number, (reader.texts.get(name, "") for name in ("width", "height"))))
    frame = (size[0], size[1]) if min(size) > 0 else None
    return VocFile(reader.texts.get("filename", "").strip(), frame, reader.objects)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _revise(location: str, options: DatasetOptions, changes: Mapping[str, str | None]) -> Revision:
    """The same files but for the objects that have another category or are gone."""
    split = find_split(location, options)
    changed, ids = dict[str, bytes](), dict[str, list[str]]()
    read = list[_ReadFile]()
    for each in _read(split):
        if isinstance(each.content, str):
            continue
        read.append(replace(each, data=b""))
        numbers = range(1, len(each.content.objects) + 1)
        ids[each.file] = [as_text(f"{each.name}#{number}") for number in numbers]
        pairs = zip(ids[each.file], each.content.objects, strict=True)
        edits = [_edit(each.data, found, changes[key]) for key, found in pairs if key in changes]
        if edits:
            changed[each.file] = edited(each.data, edits)
    for each, kept in zip(read, _once_each(read)[0], strict=True):
        if not kept:
            del ids[each.file]
            changed.pop(each.file, None)
    known = {key for of_file in ids.values() for key in of_file}
    return Revision(
        split.root,
        changed,
        [name for name in split.everything if name not in changed],
        [name for name in changes if name not in known],
    )


def _edit(data: bytes, found: VocObject, label: str | None) -> tuple[int, int, bytes]:
    """What gives an object another category, or takes it out with the blanks before it."""
    if label is None:
        return without(data, found.span)
    start, end = found.name_span or (found.span[1], found.span[1])
    return start, end, as_content(label)


class _Reader(XmlReader):
    """Reads an annotation as it is parsed, with the places of what may be changed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.texts: dict[str, str] = {}
        self.objects: list[VocObject] = []

    def opened(self, _attributes: object) -> None:
        """Begins an object."""
        if self.path[1:] == ["object"]:
            self.objects.append(VocObject((self.began, self.began), sides={}))

    def closed(self, text: str, end: int) -> None:
        """Takes what an element says."""
        path = self.path[1:]
        if path == ["object"]:
            self.objects[-1].span = (self.objects[-1].span[0], self.last_of(end))
        elif path == ["object", "name"]:
            self.objects[-1].name = text.strip() or None
            self.objects[-1].name_span = (self.data.index(b">", self.began) + 1, end)
        elif path[:-1] == ["object", "bndbox"] and self.objects[-1].sides is not None:
            self.objects[-1].sides[path[-1]] = text
        elif path in (["filename"], ["size", "width"], ["size", "height"]):
            self.texts[path[-1]] = text
