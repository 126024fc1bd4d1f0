"""The folders below a location, on disk, on remote storage or in an archive."""

import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from difficulty_service.datasets.annotation_files import HEAD_BYTES
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.sample import Skipped
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    list_folder,
    list_tree,
    open_file,
    reading,
)
from difficulty_service.datasets.table_files import TABLE_EXTENSIONS

SAMPLES_FILE = "samples.csv"
DROPPED_FILE = "dropped.csv"
"""Lists that `difficulty clean` writes beside class folders, whose labels are those of these."""

MAX_TOPS = 8
"""Number of single folders around each other in which class folders are looked for."""

OWN_FILES = (SAMPLES_FILE, DROPPED_FILE)
_LABEL_FILES = (*TABLE_EXTENSIONS, ".json", ".xml")

WHOLE = ""
"""The path of the location itself, relative to it."""

IGNORED_NAMES = frozenset((
    "Thumbs.db", "desktop.ini", "__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN",
    "System Volume Information", "lost+found",
))  # fmt: skip


@dataclass(frozen=True)
class FolderTree:
    """The folders below a location, by their paths relative to it.

    Attributes:
        scan: Function that lists the visible entries directly in a folder; may raise OSError.
        identity: Function whose value is equal for two paths of the same folder.
        head: Function that reads the beginning of a file; may raise OSError.
        peeked: Entries of folders that were looked at and are still to be walked.
    """

    scan: Callable[[str], list[Entry]]
    identity: Callable[[str], Hashable]
    head: Callable[[str], bytes] = lambda _: b""
    peeked: dict[str, list[Entry]] = field(default_factory=dict)

    def look(self, folder: str) -> list[Entry]:
        """The entries of a folder, which a walk does not list a second time."""
        if folder not in self.peeked:
            self.peeked[folder] = self.scan(folder)
        return self.peeked[folder]

    def take(self, folder: str) -> list[Entry]:
        """The entries of a folder, for the last time."""
        entries = self.peeked.pop(folder, None)
        return self.scan(folder) if entries is None else entries


def visible(entries: list[Entry]) -> list[Entry]:
    """The entries without hidden ones and metadata files of file managers."""
    return [e for e in entries if not e[0].startswith(".") and e[0] not in IGNORED_NAMES]


@dataclass(frozen=True)
class Level:
    """The visible entries of a folder, sorted; its path ends with a slash unless it is WHOLE."""

    prefix: str
    entries: list[Entry]

    @classmethod
    def of(cls, tree: FolderTree, location: str, prefix: str) -> "Level":
        """The entries of a folder; raises DatasetError where it cannot be listed."""
        with reading(repr(location), "listed"):
            return cls(prefix, sorted(tree.look(prefix.rstrip("/"))))

    @property
    def path(self) -> str:
        """Its path without a slash."""
        return self.prefix.rstrip("/")

    @property
    def folders(self) -> list[str]:
        """Folders that may be classes."""
        return [n for n, is_dir, _ in self.entries if is_dir and not has_image_extension(n)]

    @property
    def files(self) -> list[str]:
        """Files."""
        return [name for name, is_dir, _ in self.entries if not is_dir]

    @property
    def has_images(self) -> bool:
        """Whether one of the files may be an image."""
        return any(map(has_image_extension, self.files))

    @property
    def label_files(self) -> list[str]:
        """Files that may hold the labels."""
        return label_files(self.files)


def label_files(paths: Iterable[str]) -> list[str]:
    """Those of some files that may hold the labels."""
    known = [path for path in paths if path.lower().endswith(_LABEL_FILES)]
    return [path for path in known if path.rpartition("/")[2] not in OWN_FILES]


def peek(tree: FolderTree, folder: str) -> Level:
    """The entries of a folder; none where it cannot be listed, which is told when it is walked."""
    try:
        return Level(f"{folder}/", sorted(tree.look(folder)))
    except OSError:
        return Level(f"{folder}/", [])


def holds_images(tree: FolderTree, folder: str) -> bool:
    """Whether a folder has an image at any depth that is looked at; stops at the first."""
    pending = [(folder, 0)]
    while pending:
        path, depth = pending.pop()
        level = peek(tree, path)
        if level.has_images:
            return True
        if depth < MAX_TOPS:
            pending += [(level.prefix + name, depth + 1) for name in reversed(level.folders)]
    return False


def folders_inside(tree: FolderTree, folder: str) -> list[str]:
    """The folders in a folder, or in the single one in it; none where it has images of its own."""
    for _ in range(MAX_TOPS):
        level = peek(tree, folder)
        if level.has_images or len(level.folders) != 1:
            break
        folder = level.prefix + level.folders[0]
    return [] if level.has_images else level.folders


def skip_single_folders(
    tree: FolderTree, location: str, split: str | None, start: str = WHOLE
) -> tuple[str, list[Skipped]]:
    """The folders around the class folders, with a slash, and the entries beside them.

    A program that unpacks an archive often makes a folder around the one inside it. A single folder
    of folders is not the only class: there would be nothing to compare it with.
    """
    prefix, skipped = start, list[Skipped]()
    for _ in range(MAX_TOPS):
        level = Level.of(tree, location, prefix)
        if len(level.folders) != 1 or level.folders[0] == split:
            break
        inside = peek(tree, prefix + level.folders[0])
        if inside.has_images or not inside.folders:
            break
        skipped += strays(level.entries, prefix)
        prefix = inside.prefix
    return prefix, skipped


def strays(entries: list[Entry], prefix: str = "") -> Iterator[Skipped]:
    """The entries beside class folders, each with the reason why it is no sample."""
    for name, is_dir, _ in entries:
        if is_dir and has_image_extension(name):
            yield prefix + name, "a folder with the extension of an image"
        elif not is_dir:
            kind = "an image" if has_image_extension(name) else "a file"
            yield prefix + name, f"{kind} outside the class folders"


def why_empty(tree: FolderTree, folder: str) -> str:
    """The reason why a class folder has no samples."""
    try:
        tree.scan(folder)
    except OSError as error:
        return f"a class folder that cannot be listed: {error.strerror or error}"
    return "an empty class folder"


def walk(tree: FolderTree, class_folder: str) -> list[tuple[str, int]]:
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


def _scan_once(
    tree: FolderTree, folder: str, above: frozenset[Hashable]
) -> tuple[list[Entry], Hashable]:
    """Entries and identity of a folder; no entries if it is unreadable or contains itself."""
    try:
        identity = tree.identity(folder)
        return ([] if identity in above else tree.take(folder)), identity
    except OSError:  # listed as an entry without content; opening it raises the reason
        return [], None


def tree_of(place: StoredPath, location: str) -> FolderTree:
    """The folders below a place; a remote one is listed in a single request."""
    if place.is_local:
        identity = partial(_local_identity, place)
        return FolderTree(
            lambda folder: visible(list_folder(place.join(folder))),
            identity,
            partial(_head, place),
        )
    with reading(repr(location), "listed"):
        folders = list_tree(place)
    return FolderTree(lambda folder: visible(folders.get(folder, [])), str, partial(_head, place))


def _head(place: StoredPath, path: str) -> bytes:
    with open_file(place.join(path)) as file:
        return file.read(HEAD_BYTES)


def _local_identity(place: StoredPath, folder: str) -> Hashable:
    status = os.stat(place.join(folder).path)  # noqa: PTH116 - keeps names that are not UTF-8
    return status.st_dev, status.st_ino
