"""The layout with one folder per class, for folders on disk, on remote storage or in an archive.

Nothing is dropped silently: every entry of a class folder is a sample, even if it cannot be an
image, and what is outside a class folder is listed as skipped, as are empty class folders, which
are no classes. Only hidden files and metadata files of file managers are ignored. A folder that has
images and no folders is one without labels.
"""

import os
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, ImageError, Setting
from difficulty_service.datasets.image_openers import (
    extension_problem,
    has_image_extension,
    open_image,
)
from difficulty_service.datasets.listing import Listing, as_text, build_dataset, check_options
from difficulty_service.datasets.sample import (
    UNLABELLED,
    Dataset,
    DatasetOptions,
    FileOpener,
    ImageOpener,
    Skipped,
)
from difficulty_service.datasets.splits import SPLIT_NAMES
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    list_folder,
    list_tree,
    reading,
    resolve,
)
from difficulty_service.datasets.table_files import TABLE_EXTENSIONS

SAMPLES_FILE = "samples.csv"
DROPPED_FILE = "dropped.csv"
"""Lists that `difficulty clean` writes beside class folders, whose labels are those of these."""

MAX_TOPS = 8
"""Number of single folders around each other in which class folders are looked for."""

_OWN_FILES = (SAMPLES_FILE, DROPPED_FILE)
_LABEL_FILES = (*TABLE_EXTENSIONS, ".json", ".xml")
_OF_BOXES = frozenset(
    ("images", "jpegimages", "imagesets", "labels", "annotations", "masks", "segmentationclass")
)
_YEAR = re.compile(r"_?\d{4}$")

WHOLE = ""
"""The path of the location itself, relative to it."""

IGNORED_NAMES = frozenset(("Thumbs.db", "desktop.ini", "__MACOSX"))


@dataclass(frozen=True)
class Tree:
    """The folders below a location, by their paths relative to it.

    Attributes:
        scan: Function that lists the visible entries directly in a folder; may raise OSError.
        identity: Function whose value is equal for two paths of the same folder.
    """

    scan: Callable[[str], list[Entry]]
    identity: Callable[[str], Hashable]


@dataclass(frozen=True)
class ClassFolders:
    """The content of the class folders, class by class; one path, label and size for each sample.

    Attributes:
        names: Names of the classes.
        skipped: Paths, relative to the location, of empty class folders and of what is outside
            class folders.
    """

    names: tuple[str, ...]
    paths: list[str]
    labels: NDArray[np.int32]
    sizes: NDArray[np.int64]
    skipped: list[Skipped]

    def listing(self, files: tuple[object, ...] = ()) -> Listing:
        """A listing with the paths as ids."""
        ids = [as_text(path) for path in self.paths]
        skipped = [(as_text(path), reason) for path, reason in self.skipped]
        return Listing(self.names, ids, self.labels, self.sizes, files, skipped)

    def in_order(self, order: NDArray[np.int64]) -> "ClassFolders":
        """The same samples in another order of their positions."""
        paths = [self.paths[position] for position in order.tolist()]
        return replace(self, paths=paths, labels=self.labels[order], sizes=self.sizes[order])

    def describe(self, position: int) -> str:
        """The path of a sample, for messages."""
        return repr(self.paths[position])


def find_class_folders(
    tree: Tree, location: str, split: str | None, *, unlabelled: bool = False
) -> ClassFolders:
    """Finds the samples of a tree whose folders are the classes, sorted by name.

    Without labels, all files below the location are samples of one class.
    """
    folders, skipped = _class_folders(tree, location, split, unlabelled=unlabelled)
    is_one = unlabelled or folders == [WHOLE]
    names: list[str] = []
    paths: list[str] = []
    sizes: list[int] = []
    counts = []
    for folder in folders:
        entries = sorted(_walk(tree, folder))
        if not entries:
            skipped.append((folder, _why_empty(tree, folder)))
            continue
        names.append(UNLABELLED if is_one else as_text(folder.rpartition("/")[2]))
        paths += [path for path, _ in entries]
        sizes += [size for _, size in entries]
        counts.append(len(entries))
    return ClassFolders(
        names=tuple(names),
        paths=paths,
        labels=np.repeat(np.arange(len(names), dtype=np.int32), counts),
        sizes=np.array(sizes, dtype=np.int64),
        skipped=skipped,
    )


def visible(entries: list[Entry]) -> list[Entry]:
    """The entries without hidden ones and metadata files of file managers."""
    return [e for e in entries if not e[0].startswith(".") and e[0] not in IGNORED_NAMES]


def _class_folders(
    tree: Tree, location: str, split: str | None, *, unlabelled: bool
) -> tuple[list[str], list[Skipped]]:
    """Class folders, sorted, and the entries beside them; paths relative to the location.

    Without labels, the folder that holds all samples, which is WHOLE unless there is a split.
    """
    if unlabelled and split is None:
        return [WHOLE], []
    prefix, skipped = _skip_single_folders(tree, location, split)
    top = _scan_top(tree, location, prefix.rstrip("/"))
    if split is not None:
        names = sorted(name for name, folder, _ in top if folder)
        if split not in names:
            raise DatasetError(
                f"{location!r} has no sub-folder {split!r}",
                f"it has {names[:20]}",
                parameter="split",
            )
        prefix = f"{prefix}{split}/"
        top = _scan_top(tree, location, prefix.rstrip("/"))
    if unlabelled:
        return [prefix.rstrip("/")], skipped
    folders = sorted(name for name, folder, _ in top if folder and not has_image_extension(name))
    files = sorted(name for name, folder, _ in top if not folder)
    where = f"{location!r}, split {split!r}," if split else repr(location)
    if not folders and not prefix and any(map(has_image_extension, files)):
        return [WHOLE], skipped
    if not folders:
        raise DatasetError(
            f"{where} has no class folders, only {files[:5]}",
            "expected images, one sub-folder per class, or give the table or tar file itself",
            parameter="location",
        )
    if split is None:
        _refuse_unchosen_splits(tree, location, prefix, folders)
    _refuse_labels_elsewhere(where, folders, files)
    skipped += strays(sorted(top), prefix)
    return [prefix + folder for folder in folders], skipped


def _skip_single_folders(tree: Tree, location: str, split: str | None) -> tuple[str, list[Skipped]]:
    """The folders around the class folders, with a slash, and the entries beside them.

    A program that unpacks an archive often makes a folder around the one inside it. A single folder
    of folders is not the only class: there would be nothing to compare it with.
    """
    prefix, skipped = "", list[Skipped]()
    for _ in range(MAX_TOPS):
        entries = _scan_top(tree, location, prefix.rstrip("/"))
        folders = [name for name, folder, _ in entries if folder and not has_image_extension(name)]
        if len(folders) != 1 or folders[0] == split:
            break
        try:
            inside = tree.scan(prefix + folders[0])
        except OSError:  # listed as a class folder with the reason
            break
        has_images = any(not folder and has_image_extension(name) for name, folder, _ in inside)
        if has_images or not any(folder for _, folder, _ in inside):
            break
        skipped += strays(sorted(entries), prefix)
        prefix += f"{folders[0]}/"
    return prefix, skipped


def _refuse_labels_elsewhere(where: str, folders: list[str], files: list[str]) -> None:
    """Refuses folders that are evidently no classes: the labels are in files."""
    listed = [name for name in files if name.lower().endswith(_LABEL_FILES)]
    listed = [name for name in listed if name not in _OWN_FILES]
    if len(folders) == 1 and listed:
        is_table = listed[0].lower().endswith(TABLE_EXTENSIONS)
        raise DatasetError(
            f"{where} has a single folder, {folders[0]!r}, with {listed[0]!r} beside it, where the "
            "labels probably are",
            "name that table as the dataset, unpacked if this is an archive"
            if is_table
            else "unpack it if it is an archive of boxes, whose folder is read; otherwise write a "
            "CSV with the columns path and label, and name that as the dataset",
            parameter="location",
        )
    names = {_YEAR.sub("", name.lower()) for name in folders}
    if len(folders) > 1 and names & _OF_BOXES and names <= _OF_BOXES | SPLIT_NAMES:
        raise DatasetError(
            f"{where} has the folders {folders}, as datasets of boxes or masks do, and no classes",
            "unpack it if it is an archive of boxes, whose folder is read; otherwise write one "
            "sub-folder per class, or a CSV with the columns path and label",
            parameter="location",
        )


def strays(entries: list[Entry], prefix: str = "") -> Iterator[Skipped]:
    """The entries beside class folders, each with the reason why it is no sample."""
    for name, is_dir, _ in entries:
        if is_dir and has_image_extension(name):
            yield prefix + name, "a folder with the extension of an image"
        elif not is_dir:
            kind = "an image" if has_image_extension(name) else "a file"
            yield prefix + name, f"{kind} outside the class folders"


def _why_empty(tree: Tree, folder: str) -> str:
    try:
        tree.scan(folder)
    except OSError as error:
        return f"a class folder that cannot be listed: {error.strerror or error}"
    return "an empty class folder"


def _scan_top(tree: Tree, location: str, folder: str) -> list[Entry]:
    with reading(repr(location), "listed"):
        return tree.scan(folder)


def _refuse_unchosen_splits(tree: Tree, location: str, prefix: str, folders: list[str]) -> None:
    if all(name.lower() in SPLIT_NAMES for name in folders) and all(
        any(folder for _, folder, _ in _scan_top(tree, location, prefix + name)) for name in folders
    ):
        raise DatasetError(
            f"{location!r} holds the splits {folders}, not classes",
            "choose one, for example ",
            Setting("split", folders[0]),
            parameter="split",
        )


def _walk(tree: Tree, class_folder: str) -> list[tuple[str, int]]:
    """Path and size of each file and each empty folder below a class folder."""
    samples: list[tuple[str, int]] = []
    above = frozenset() if class_folder == WHOLE else frozenset([tree.identity(WHOLE)])
    pending: list[tuple[str, frozenset[Hashable]]] = [(class_folder, above)]
    while pending:
        folder, above = pending.pop()
        entries, identity = _scan_once(tree, folder, above)
        if not entries and folder != class_folder:
            samples.append((folder, 0))
        for name, is_dir, size in entries:
            path = f"{folder}/{name}" if folder else name
            if is_dir and not has_image_extension(name):
                pending.append((path, above | {identity}))
            else:
                samples.append((path, size))
    return samples


def _scan_once(tree: Tree, folder: str, above: frozenset[Hashable]) -> tuple[list[Entry], Hashable]:
    """Entries and identity of a folder; no entries if it is unreadable or contains itself."""
    try:
        identity = tree.identity(folder)
        return ([] if identity in above else tree.scan(folder)), identity
    except OSError:  # listed as an entry without content; opening it raises the reason
        return [], None


def open_image_folder(location: str, options: DatasetOptions) -> Dataset:
    """Opens a folder whose sub-folders are the classes, sorted by name.

    With a split, the location is the folder that contains the folders of the splits.
    """
    check_options(options, "a folder of class folders")
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        raise DatasetError(
            f"{location!r} does not exist or is not a folder",
            "check the path or URI",
            parameter="location",
        )
    tree = _tree(place, location)
    folders = find_class_folders(tree, location, options.split, unlabelled=options.unlabelled)
    open_at = partial(_open_at, place, folders.paths)
    return build_dataset(location, options, folders.listing(), open_at, folders.describe)


def _tree(place: StoredPath, location: str) -> Tree:
    if place.is_local:
        identity = partial(_local_identity, place)
        return Tree(lambda folder: visible(list_folder(place.join(folder))), identity)
    with reading(repr(location), "listed"):
        folders = list_tree(place)
    return Tree(lambda folder: visible(folders.get(folder, [])), str)


def _local_identity(place: StoredPath, folder: str) -> Hashable:
    status = os.stat(place.join(folder).path)  # noqa: PTH116 - keeps names that are not UTF-8
    return status.st_dev, status.st_ino


def _open_at(
    place: StoredPath, paths: list[str], positions: NDArray[np.int64]
) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        entry = place.join(paths[position])
        opener = partial(_open_entry, entry)
        yield FileOpener(entry.path, opener) if entry.is_local else opener


def _open_entry(place: StoredPath) -> BinaryIO:
    """Opens one entry of a class folder."""
    if has_image_extension(place.name):
        return open_image(place)
    if place.is_local:  # opening a pipe or an empty folder raises a more specific reason
        open_image(place).close()
    raise ImageError(extension_problem(place.name))
