"""Which JSON files are of COCO, and of which split each of them is.

The keys of JSON have no order, and a list of images may be larger than memory, so a file is told by
the keys that its first part shows: those of the outermost object, and of the first element of a
list.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from difficulty_service.datasets.splits import SPLIT_NAMES
from difficulty_service.datasets.storage import Entry, StoredPath, list_folder, open_file

EXTENSION = ".json"
ANNOTATIONS = frozenset((
    "annotations", "annotation", "anns", "ann", "labels", "label", "coco", "json", "jsons",
    "metadata",
))  # fmt: skip
"""Folders of such files, in lower case."""

LISTS = ("images", "annotations", "categories")

_USUAL = frozenset(("info", "licenses", "type", "videos", *LISTS))
_ELEMENTS = {
    "images": {"file_name"},
    "annotations": {"image_id", "category_id"},
    "categories": {"id", "name"},
}
"""Keys that the elements of each list have."""

_SAME_IMAGES = ("captions_", "person_keypoints_", "stuff_", "panoptic_")
"""What names of files with other annotations of the same images begin with."""

_WITHOUT_BOXES = "image_info_"
"""What names of files with images and no annotations begin with."""

_LOOKED_AT = 100
_HEAD_BYTES, _TRIED_BYTES = 1 << 17, 1 << 24
_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_VALUE = re.compile(rb"\s*:\s*(.)", re.DOTALL)
_LIST = re.compile(rb'"(images|annotations|categories)"\s*:\s*\[\s*[{\]]')


@dataclass
class Head:
    """What the first part of a file shows.

    Attributes:
        members: The first character of each member of the outermost object.
        elements: Keys of the first element of each member that is a list of objects.
        is_whole: Whether the outermost object ends there.
    """

    members: dict[str, bytes] = field(default_factory=dict)
    elements: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    is_whole: bool = False

    @property
    def lists(self) -> set[str]:
        """Those of LISTS that are one."""
        return {name for name in LISTS if self.members.get(name) == b"["}


def read_head(data: bytes) -> Head | None:
    """What the first bytes of a file show; None where it is no object of JSON."""
    start = _START.match(data)
    if start is None:
        return None
    head, name, depth, elements = Head(), "", 1, 0
    for token in _TOKEN.finditer(data, start.end()):
        first = token[0][:1]
        if first in b"[{":
            elements += depth == 2  # noqa: PLR2004 - that of the elements of a list
            depth += 1
        elif first in b"]}":
            depth -= 1
            if not depth:
                head.is_whole = True
                break
        elif (value := _VALUE.match(data, token.end())) is not None:
            key = token[0][1:-1].decode(errors="replace")
            if depth == 1:
                name, elements = key, 0
                head.members[key] = value[1]
            elif depth == 3 and elements == 1:  # noqa: PLR2004
                head.elements[name].add(key)
    return head


def is_coco_file(place: StoredPath) -> bool:
    """Whether a file has the lists of COCO, as far as that can be seen without reading it all."""
    return place.name.lower().endswith(EXTENSION) and _lists_in(place) is not None


def _lists_in(place: StoredPath) -> set[str] | None:
    """The lists that a file of COCO shows at once; None for any other file."""
    try:
        with open_file(place) as file:
            data = file.read(_HEAD_BYTES)
            head = read_head(data)
            if head is None or any(head.members.get(name, b"[") != b"[" for name in LISTS):
                return None
            if head.is_whole:
                return head.lists if len(head.lists) > 1 else None
            if any(_ELEMENTS[name] <= head.elements[name] for name in head.lists):
                return {*LISTS}
            if not head.members or not _USUAL.issuperset(head.members):
                data += file.read(_TRIED_BYTES)
                found = {name.decode() for name in _LIST.findall(data)}
                return {*LISTS} if len(found) > 1 else None
    except OSError:
        return None
    return {*LISTS}


def find_files(place: StoredPath, entries: list[Entry]) -> dict[str, StoredPath]:
    """The files of the splits below a folder, by what the split is called."""
    found = _files_in(place, entries)
    for name, is_dir, _ in sorted(entries):
        # Of other folders there may be thousands, one for each class.
        if not is_dir or name.lower() not in ANNOTATIONS | SPLIT_NAMES:
            continue
        below = place.join(name)
        try:
            files = _files_in(below, list_folder(below))
        except OSError:
            continue
        if name.lower() in ANNOTATIONS:
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
    found = {name: _lists_in(place.join(name)) for name in names[:_LOOKED_AT]}
    files = [name for name, lists in found.items() if lists is not None]
    # Images of a test set, whose boxes nobody is told.
    boxed = [
        name
        for name in files
        if LISTS[1] in (found[name] or ()) and not name.startswith(_WITHOUT_BOXES)
    ]
    return {split_of(name): place.join(name) for name in boxed or files}


def split_of(name: str) -> str:
    """The split in the name of a file, such as `val2017` in `instances_val2017.json`."""
    return name.removesuffix(EXTENSION).removeprefix("instances_")
