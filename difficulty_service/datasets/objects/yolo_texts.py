"""Where the texts of images are: in `labels` for images in `images`, or beside the images.

Ultralytics puts `labels` in the place of the last `images` of a path, other tools in that of the
first one. Texts that are in several of these places are compared.
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from difficulty_service.base.wording import list_names
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.objects.files import read_or_reason, read_start, without_mark
from difficulty_service.datasets.objects.yolo_lines import is_label_text
from difficulty_service.datasets.splits import split_of_folder
from difficulty_service.datasets.storage import StoredPath, list_folder

EXTENSION = ".txt"
IMAGE_FOLDERS = frozenset(("images", "image", "imgs", "img", "jpegimages"))
LABEL_FOLDERS = ("labels", "Labels", "LABELS", "label", "Label")

SHOWN_BYTES = 1 << 16
"""First bytes of a text, which show what it is about."""

_LOOKED_AT = 20
_BESIDE = frozenset(("classes", "predefined_classes", "labels"))


def is_other_text(name: str) -> bool:
    """Whether a text is called as one about the whole dataset: its classes, or those of a split."""
    stem = _stem(name)
    return stem in _BESIDE or stem.startswith("readme") or split_of_folder(stem) is not None


def _stem(name: str) -> str:
    return posixpath.basename(name).removesuffix(EXTENSION).lower()


@dataclass(frozen=True)
class Texts:
    """The texts of images, by paths below the root.

    Attributes:
        of_images: The text of each image that has one.
        unclear: Why it is not known which text is that of an image.
        others: Texts beside these that belong to no image.
    """

    of_images: Mapping[str, str]
    unclear: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[str] = ()


def places_of_texts(folder: str) -> list[str]:
    """Folders in which the texts of the images of a folder may be, the usual one first."""
    parts = folder.split("/") if folder else []
    at = [place for place, part in enumerate(parts) if part.lower() in IMAGE_FOLDERS]
    found = ["/".join(_replaced(parts, [place], LABEL_FOLDERS[0])) for place in at[-1:]]
    found.append(folder)
    for label in LABEL_FOLDERS:
        found += ["/".join(_replaced(parts, [place], label)) for place in reversed(at)]
        found.append("/".join(_replaced(parts, at, label)))
        if not at:  # beside the images, or above them for each of their folders
            found += [posixpath.join(folder, label), posixpath.join(label, folder).rstrip("/")]
    return list(dict.fromkeys(found))


def _replaced(parts: Sequence[str], at: Sequence[int], label: str) -> list[str]:
    return [label if place in at else part for place, part in enumerate(parts)]


def find_texts(root: StoredPath, images: Iterable[str]) -> Texts:
    """The texts of images, wherever they are."""
    by_folder = defaultdict[str, list[str]](list)
    for image in images:
        by_folder[posixpath.dirname(image)].append(image)
    names = _Names(root)
    candidates = dict[str, list[str]]()
    for folder, inside in sorted(by_folder.items()):
        places = places_of_texts(folder)
        live = [each for each in places if _has_labels(root, names, each, inside)]
        # In the usual place is what is damaged, too.
        if not live or (places[0] != folder and places[0] not in live):
            live = [places[0], *live]
        for image in inside:
            texts = [posixpath.join(each, text_name(image)) for each in live]
            there = [each for each in texts if names.has(each)]
            candidates[image] = [each for each in there if _may_be_labels(root, each)]
    chosen, unclear = dict[str, str](), dict[str, str]()
    for image, texts in candidates.items():
        if len(texts) > 1 and len({_content(root, each) for each in texts}) > 1:
            unclear[image] = f"its boxes are in texts that differ: {list_names(texts)}"
        elif texts:
            chosen[image] = texts[0]
    return Texts(chosen, unclear, _others(names, chosen.values(), candidates.values()))


class _Names:
    """Names of the texts in folders, each of which is listed once."""

    def __init__(self, root: StoredPath) -> None:
        self._root = root
        self._known = dict[str, tuple[frozenset[str], frozenset[str]]]()

    def inside(self, folder: str) -> frozenset[str]:
        """The texts of a folder; none where it is not there."""
        return self._listed(folder)[0]

    def _listed(self, folder: str) -> tuple[frozenset[str], frozenset[str]]:
        """The texts and the folders of a folder."""
        if folder not in self._known:
            above, name = posixpath.split(folder)
            # Most places are not there, and of remote storage each would be a request.
            is_root = not folder or posixpath.isabs(folder)
            is_there = is_root or name in self._listed(above)[1]
            self._known[folder] = self._list(folder) if is_there else (frozenset(), frozenset())
        return self._known[folder]

    def _list(self, folder: str) -> tuple[frozenset[str], frozenset[str]]:
        try:
            entries = list_folder(self._root.join(folder) if folder else self._root)
        except OSError:
            entries = []
        texts = (name for name, is_dir, _ in entries if not is_dir and name.endswith(EXTENSION))
        folders = (name for name, is_dir, _ in entries if is_dir)
        return frozenset(name for name in texts if name[0] != "."), frozenset(folders)

    def has(self, path: str) -> bool:
        """Whether a text is there."""
        return posixpath.basename(path) in self.inside(posixpath.dirname(path))


def text_name(image: str) -> str:
    """The name of the text of an image."""
    return posixpath.splitext(posixpath.basename(image))[0] + EXTENSION


def _has_labels(root: StoredPath, names: _Names, folder: str, images: Sequence[str]) -> bool:
    """Whether one of the first texts of images in a folder has a box."""
    there = names.inside(folder)
    texts: Iterator[str] = filter(there.__contains__, map(text_name, sorted(images)))
    paths = (posixpath.join(folder, name) for name in islice(texts, _LOOKED_AT))
    return any(map(partial(_has_boxes, root), paths)) if there else False


def _has_boxes(root: StoredPath, path: str) -> bool:
    return is_label_text(read_start(root.join(path), SHOWN_BYTES))


def _may_be_labels(root: StoredPath, path: str) -> bool:
    """Whether a text is not one about the whole dataset."""
    if not is_other_text(path):
        return True
    data = read_start(root.join(path), SHOWN_BYTES)
    return is_label_text(data) or (_stem(path) not in _BESIDE and not is_list(data))


def is_list(data: bytes) -> bool:
    """Whether the first line of a text is the path of an image."""
    lines = (line.strip() for line in without_mark(data).splitlines()[:_LOOKED_AT])
    first = next(filter(None, lines), b"")
    return has_image_extension(first.decode(errors="replace"))


def _content(root: StoredPath, path: str) -> bytes | str:
    data = read_or_reason(root.join(path))
    return (
        data if isinstance(data, str) else b"\n".join(map(bytes.strip, data.splitlines())).strip()
    )


def _others(names: _Names, chosen: Iterable[str], candidates: Iterable[Sequence[str]]) -> list[str]:
    known = {each for texts in candidates for each in texts}
    found = list[str]()
    for folder in sorted({posixpath.dirname(text) for text in chosen}):
        paths = (posixpath.join(folder, name) for name in names.inside(folder))
        found += [path for path in paths if path not in known and not is_other_text(path)]
    return sorted(found)
