"""Whether a folder or a file is a dataset of YOLO."""

from collections.abc import Sequence
from itertools import islice

from difficulty_service.datasets.annotation_files import title_of_annotations
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.objects.files import read_start
from difficulty_service.datasets.objects.yolo_config import (
    DARKNET,
    USUAL_NAMES,
    YAML_EXTENSIONS,
    YoloConfig,
    read_config,
    read_darknet,
)
from difficulty_service.datasets.objects.yolo_lines import has_box, is_label_text
from difficulty_service.datasets.objects.yolo_texts import (
    EXTENSION,
    IMAGE_FOLDERS,
    LABEL_FOLDERS,
    SHOWN_BYTES,
    text_name,
)
from difficulty_service.datasets.splits import split_folders
from difficulty_service.datasets.storage import Entry, StoredPath, list_folder

_MOST_CONFIGS = 10
_LOOKED_AT = 100
_TRIED = 20
_DATA = "data"
_OF_CUB = "image_class_labels.txt"
"""What CUB-200 has beside `classes.txt`; its images are in a folder for each class."""
_LABELS = frozenset(name.lower() for name in LABEL_FOLDERS)


def is_yolo_file(place: StoredPath) -> bool:
    """Whether a file says which classes a dataset has."""
    name = place.name.lower()
    if name.endswith(DARKNET):
        return read_darknet(place) is not None
    return name.endswith(YAML_EXTENSIONS) and read_config(place) is not None


def is_yolo(place: StoredPath, entries: list[Entry]) -> bool:
    """Whether a folder has images with boxes in text files."""
    if any(isinstance(each, YoloConfig) and each.splits for each in find_configs(place, entries)):
        return True
    files = {name for name, is_dir, _ in entries if not is_dir}
    if _OF_CUB in files:
        return False
    folders = [name for name, is_dir, _ in entries if is_dir]
    images = [name for name in folders if name.lower() in IMAGE_FOLDERS]
    if "obj.names" in files:
        return True
    try:
        return (
            find_darknet(place, entries) is not None
            or ("classes.txt" in files and any(_is_flat(place.join(name)) for name in images))
            or _has_labels_beside(place, folders)
            or _has_boxed_image(place, entries)
            or any(_has_boxed_image(place.join(name), levels=1) for name in images)
            or any(_is_split(place.join(name)) for name in sorted(split_folders(folders)))
        )
    except OSError:
        return False


def find_configs(place: StoredPath, entries: Sequence[Entry]) -> list[YoloConfig | str]:
    """What the YAML files of a folder say, best first; a text says why one cannot be used."""
    files = [name for name, is_dir, _ in sorted(entries) if not is_dir]
    files.sort(key=lambda name: name not in USUAL_NAMES)
    places = [place.join(name) for name in files if name.lower().endswith(YAML_EXTENSIONS)]
    found = ((each.name, read_config(each)) for each in places[:_MOST_CONFIGS])
    known = [f"{name!r} {each}" if isinstance(each, str) else each for name, each in found if each]
    return sorted(known, key=lambda each: isinstance(each, YoloConfig) and not each.splits)


def find_darknet(place: StoredPath, entries: Sequence[Entry]) -> YoloConfig | None:
    """What `obj.data` says, or a file like it, here or in `data` as in the folder of darknet."""
    files = [place.join(name) for name, is_dir, _ in sorted(entries) if not is_dir]
    if (_DATA, True) in {(name, is_dir) for name, is_dir, _ in entries}:
        below = list_folder(place.join(_DATA))
        files += [place.join(f"{_DATA}/{name}") for name, is_dir, _ in sorted(below) if not is_dir]
    places = [each for each in files if each.name.lower().endswith(DARKNET)]
    return next(filter(None, map(read_darknet, places[:_MOST_CONFIGS])), None)


def _is_split(folder: StoredPath) -> bool:
    """Whether a folder has images with texts, beside them or in `labels`."""
    entries = list_folder(folder)
    folders = [name for name, is_dir, _ in entries if is_dir]
    return _has_labels_beside(folder, folders) or _has_boxed_image(folder, entries)


def _has_labels_beside(place: StoredPath, folders: Sequence[str]) -> bool:
    """Whether there is a folder of images, and one of texts beside it."""
    if not any(name.lower() in IMAGE_FOLDERS for name in folders):
        return False
    return any(_has_texts(place.join(name)) for name in folders if name.lower() in _LABELS)


def _has_texts(folder: StoredPath) -> bool:
    """Whether texts are in a folder, or in the folders of it, and not those of another format."""
    try:
        entries = list_folder(folder, _LOOKED_AT)
        folders = [folder.join(name) for name, is_dir, _ in entries if is_dir]
        below = [(each, list_folder(each, _LOOKED_AT)) for each in folders[:_LOOKED_AT]]
    except OSError:
        return False
    every = [(folder, entries), *below]
    places = [
        inside.join(name)
        for inside, names in every
        for name, is_dir, _ in sorted(names)
        if not is_dir and name.endswith(EXTENSION)
    ]
    for text in places[:_TRIED]:
        head = read_start(text, SHOWN_BYTES)
        if is_label_text(head):
            return True
        if title_of_annotations(head) is not None or _lists_images(head):
            return False
    return bool(places)


def _lists_images(head: bytes) -> bool:
    """Whether a text names images in its lines, as a list of a split does."""
    first = head.partition(b"\n")[0].split()
    return bool(first) and has_image_extension(first[0].decode(errors="replace"))


def _is_flat(folder: StoredPath) -> bool:
    """Whether a folder has images of its own: those of CUB-200 are in a folder for each class."""
    entries = list_folder(folder, _LOOKED_AT)
    return any(has_image_extension(name) for name, is_dir, _ in entries if not is_dir)


def _has_boxed_image(
    folder: StoredPath, entries: Sequence[Entry] | None = None, levels: int = 0
) -> bool:
    """Whether one of the first images of a folder with a text beside it has a box in that."""
    entries = list_folder(folder) if entries is None else entries
    files = {name for name, is_dir, _ in entries if not is_dir}
    texts = (text_name(name) for name in sorted(files) if has_image_extension(name))
    for text in islice((name for name in texts if name in files), _TRIED):
        if has_box(read_start(folder.join(text), SHOWN_BYTES)):
            return True
    folders = [folder.join(name) for name, is_dir, _ in sorted(entries) if is_dir and levels]
    return any(_has_boxed_image(each, None, levels - 1) for each in folders[:_TRIED])
