"""The layout with one folder per class, for folders on disk, on remote storage or in an archive.

Nothing is dropped silently: every entry of a class folder is a sample, even if it cannot be an
image, and what is outside a class folder is listed as skipped, as are empty class folders, which
are no classes. Only hidden files and metadata files of file managers are ignored. A folder that has
images and no folders is one without labels. What looks like splits or another layout is refused
with its name, unless a person says that it is of this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets.folder_checks import (
    FolderChoice,
    Folders,
    find_split,
    is_one_of_images,
    refuse_annotations,
    refuse_groups,
    refuse_labels_among,
    refuse_labels_beside,
    refuse_labels_elsewhere,
    refuse_layout_inside,
)
from difficulty_service.datasets.folder_contents import leave_out_others, refuse_field
from difficulty_service.datasets.folder_tree import (
    WHOLE,
    FolderTree,
    Level,
    peek,
    skip_single_folders,
    strays,
    tree_of,
    walk,
    why_empty,
)
from difficulty_service.datasets.image_openers import (
    extension_problem,
    has_image_extension,
    open_image,
)
from difficulty_service.datasets.label_lists import similar_names_warning
from difficulty_service.datasets.listing import Listing, as_text, build_dataset, check_options
from difficulty_service.datasets.sample import (
    UNLABELLED,
    Dataset,
    DatasetOptions,
    FileOpener,
    ImageOpener,
    Skipped,
)
from difficulty_service.datasets.storage import StoredPath, is_folder, resolve


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
        similar = similar_names_warning(self.names, "the dataset")
        notes = () if similar is None else (similar,)
        return Listing(self.names, ids, self.labels, self.sizes, files, skipped, notes)

    def in_order(self, order: NDArray[np.int64]) -> "ClassFolders":
        """The same samples in another order of their positions."""
        paths = [self.paths[position] for position in order.tolist()]
        return replace(self, paths=paths, labels=self.labels[order], sizes=self.sizes[order])

    def describe(self, position: int) -> str:
        """The path of a sample, for messages."""
        return repr(self.paths[position])


def find_class_folders(tree: FolderTree, location: str, choice: FolderChoice) -> ClassFolders:
    """Finds the samples of a tree whose folders are the classes, sorted by name.

    Without labels, all files below the location are samples of one class.

    Raises:
        DatasetError: There are none, or the folders may be something else than classes.
    """
    return _find_below(tree, location, choice, _class_folders(tree, location, choice))


def _find_below(
    tree: FolderTree, location: str, choice: FolderChoice, folders: Folders
) -> ClassFolders:
    """The samples of class folders, or of those in the only one of these with images."""
    entries = {folder: sorted(walk(tree, folder)) for folder in folders.paths}
    for folder in [each for each in entries if not entries[each]]:
        del entries[folder]
        folders.skipped.append((folder, why_empty(tree, folder)))
    if not choice.is_sure and not choice.unlabelled:
        leave_out_others(tree, entries, folders, location, choice)
        if len(entries) == 1 and len(folders.paths) > 1:
            inner = _inside_of_only(tree, location, choice, next(iter(entries)), folders)
            if inner is not None:
                return _find_below(tree, location, choice, inner)
    samples = [each for folder in entries.values() for each in folder]
    counts = [len(folder) for folder in entries.values()]
    names = [as_text(folder.rpartition("/")[2]) for folder in entries]
    return ClassFolders(
        names=tuple(names) if folders.has_classes else (UNLABELLED,) * len(names),
        paths=[path for path, _ in samples],
        labels=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        sizes=np.array([size for _, size in samples], dtype=np.int64),
        skipped=folders.skipped,
    )


def _inside_of_only(
    tree: FolderTree, location: str, choice: FolderChoice, only: str, folders: Folders
) -> Folders | None:
    """The class folders in the only folder with images, beside others; None if it is a class."""
    level = peek(tree, only)
    bare = [folder for folder in folders.paths if folder != only]
    if not level.folders or level.has_images:
        files = [path for folder in bare for path, _ in walk(tree, folder)]
        one = Level.of(tree, location, f"{only.rpartition('/')[0]}/".lstrip("/"))
        one = replace(
            one, entries=[each for each in one.entries if each[0] == only.rpartition("/")[2]]
        )
        refuse_labels_elsewhere(tree, repr(location), one, files, choice)
        return None
    inner = _class_folders(tree, location, replace(choice, split=None), level.prefix)
    return replace(inner, skipped=folders.skipped + inner.skipped)


def _class_folders(
    tree: FolderTree, location: str, choice: FolderChoice, start: str = WHOLE
) -> Folders:
    """Class folders, sorted, and the entries beside them; paths relative to the location.

    Without labels, the folder that holds all samples, which is WHOLE unless there is a split.
    """
    if choice.unlabelled and choice.split is None:
        return Folders([WHOLE], has_classes=False)
    prefix, skipped = skip_single_folders(tree, location, choice.split, start)
    top = Level.of(tree, location, prefix)
    split = find_split(tree, location, top, choice)
    if split is not None:
        around = [path for path, _ in skipped]
        levels = [top, Level.of(tree, location, f"{prefix}{split}/")]
        if not choice.unlabelled:
            prefix, beside = skip_single_folders(tree, location, None, levels[1].prefix)
            levels.append(Level.of(tree, location, prefix))
            skipped += beside
        top = levels[-1]
        refuse_labels_beside(tree, location, levels[::-1], around, choice)
    where = f"{location!r}, split {split!r}," if split else repr(location)
    if not choice.is_sure and not choice.unlabelled:
        refuse_annotations(tree, where, top, choice)
        if split is None and not top.folders:
            refuse_labels_among(tree, where, top)
    if choice.unlabelled or (not top.folders and top.has_images and (split or not prefix)):
        return Folders([top.path], skipped, has_classes=False)
    if not top.folders:
        refuse_field(where, top.files)
        raise DatasetError.of_location(
            f"{where} has no class folders, only {top.files[:5]}",
            "expected images, one sub-folder per class, or give the table or tar file itself",
        )
    if not choice.is_sure:
        if is_one_of_images(tree, top):
            return Folders([top.prefix + top.folders[0]], skipped, has_classes=False)
        refuse_labels_elsewhere(tree, where, top, [path for path, _ in skipped], choice)
        refuse_layout_inside(tree, where, top, choice)
        refuse_groups(tree, where, top, choice)
    skipped += strays(top.entries, top.prefix)
    return Folders([top.prefix + folder for folder in top.folders], skipped)


def open_image_folder(location: str, options: DatasetOptions) -> Dataset:
    """Opens a folder whose sub-folders are the classes, sorted by name.

    With a split, the location is the folder that contains the folders of the splits.
    """
    check_options(options, "a folder of class folders")
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        raise DatasetError.of_location(
            f"{location!r} does not exist or is not a folder", "check the path or URI"
        )
    tree = tree_of(place, location)
    folders = find_class_folders(tree, location, FolderChoice.of(options))
    open_at = partial(_open_at, place, folders.paths)
    return build_dataset(location, options, folders.listing(), open_at, folders.describe)


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
