"""Where the images of a file of COCO are: in a folder that their names are relative to, or by name.

Names that are of another machine, such as `../upload/1/a.jpg`, are looked for by the longest common
end, as those of Label Studio and CVAT are.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.image_openers import cell_opener
from difficulty_service.datasets.objects.boxes import BoxedImage
from difficulty_service.datasets.objects.coco_files import ANNOTATIONS, split_of
from difficulty_service.datasets.objects.files import walk
from difficulty_service.datasets.objects.one_file import FoundImage, ImagesByName
from difficulty_service.datasets.splits import split_of_file, split_of_folder
from difficulty_service.datasets.storage import StoredPath, is_folder, is_uri, list_folder

_TRIED = 5
"""Number of images by which their folder is found."""

_ELSEWHERE = re.compile(r"^([/\\]|[A-Za-z]:)|(^|[/\\])\.\.([/\\]|$)|\\")
"""A path that is absolute, leads upwards, or was written by Windows."""


@dataclass(frozen=True)
class CocoImages:
    """The images of a file.

    Attributes:
        folder: What names are relative to.
        sizes: Bytes of the files there by their paths below it.
        search: All images below the folder of the dataset, where some had to be looked for.
        by_name: What was found of these by the ends of their names.
    """

    folder: StoredPath
    sizes: Mapping[str, int]
    search: ImagesByName | None
    by_name: Mapping[str, FoundImage]

    def image(self, name: str, frame: tuple[float, float] | None) -> BoxedImage:
        """An image by its name."""
        found = self.by_name.get(name)
        if self.search is None or found is None or not (found.matches or found.rivals):
            size = self.sizes.get(posixpath.normpath(name), 0)
            return BoxedImage(name, cell_opener(name, self.folder), frame, size)
        image = self.search.image(name, found, frame)
        return BoxedImage(name, image.open, frame, image.size)

    def place(self, name: str) -> StoredPath | None:
        """Where an image is; None where it is not there."""
        found = self.by_name.get(name)
        if self.search is not None and found is not None and len(found.matches) == 1:
            return self.search.root.join(found.matches[0])
        place = self.folder.join(name)
        return place if _is_file(place) else None


def find_images(place: StoredPath, root: StoredPath | None, names: Sequence[str]) -> CocoImages:
    """Finds the images of a file.

    Args:
        root: Folder of the dataset, where that is named.
    """
    local = [name for name in dict.fromkeys(names) if not is_uri(name)]
    folder = _folder_of(place, local)
    sizes = _sizes(folder, {posixpath.dirname(name) for name in local})
    missing = [name for name in local if posixpath.normpath(name) not in sizes]
    if len(missing) < len(local):
        # Others are where they should be, so that an image of an equal name is another one.
        missing = [name for name in missing if _ELSEWHERE.search(name)]
    if not missing:
        return CocoImages(folder, sizes, None, {})
    above = place.parent.parent if place.parent.name.lower() in ANNOTATIONS else place.parent
    try:
        search = _search(place, root or above)
    except DatasetError:  # outside of the boundary
        return CocoImages(folder, sizes, None, {})
    return CocoImages(folder, sizes, search, search.find_all(missing))


def _search(place: StoredPath, root: StoredPath) -> ImagesByName:
    """The images below a folder, but not those of another split than that of the file."""
    split = split_of_file(place.name) or split_of_folder(place.parent.name)
    others = dict[str, bool]()
    sizes = dict[str, int]()
    for path, size in walk(root).items():
        folder = posixpath.dirname(path)
        if folder not in others:
            splits = {split_of_folder(part) for part in folder.split("/")} - {None}
            others[folder] = split is not None and bool(splits) and split not in splits
        if not others[folder]:
            sizes[path] = size
    return ImagesByName(root, sizes)


def _folder_of(place: StoredPath, names: Iterable[str]) -> StoredPath:
    """The folder that the names of images are relative to; that of the file where none is there."""
    here, split = place.parent, split_of(place.name)
    folders = (here, here.parent)
    candidates = [
        here,
        *(above.join(below) for above in folders for below in (split, f"images/{split}")),
        *(above.join(below) for above in folders for below in ("images", "data")),
        here.parent,
        here.parent.join(f"{split}/images"),
    ]
    looked_for = [*names][:_TRIED]
    for folder in candidates:
        if any(_is_file(folder.join(name)) for name in looked_for):
            return folder
    return here


def _is_file(place: StoredPath) -> bool:
    try:
        return is_folder(place, place.name) is False
    except DatasetError:  # outside of the boundary
        return False


def _sizes(folder: StoredPath, below: set[str]) -> dict[str, int]:
    """Bytes of each file in some folders below a folder, by its path there."""
    sizes = dict[str, int]()
    for name in below:
        try:
            entries = list_folder(folder.join(name))
        except OSError:  # the reason follows where an image is opened
            continue
        sizes |= {posixpath.normpath(posixpath.join(name, file)): size for file, _, size in entries}
    return sizes
