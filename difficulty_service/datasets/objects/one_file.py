"""Datasets whose boxes are in one file, and whose images are below its folder, found by name."""

import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from difficulty_service.base.wording import list_names
from difficulty_service.datasets.image_openers import has_image_extension, open_image, refusing
from difficulty_service.datasets.objects.boxes import BoxedImage, Boxes
from difficulty_service.datasets.objects.files import find_folder, walk
from difficulty_service.datasets.sample import Content, DatasetOptions, ImageOpener, Revision
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import Entry, StoredPath, is_folder, resolve

LOOKED_AT = 100
"""Number of files of a folder that are tried."""

MOST_LIMITED = 1 << 29
"""Bytes of a file of whoever is not trusted; the largest one of COCO has 470 MB."""

USUAL_FOLDERS = ("", "images")
"""Folders beside the file in which an image is what its name says, wherever others have it."""

_NAMED = 3
_KEPT = 8


@dataclass(frozen=True)
class OneFile:
    """A file of boxes, and what is below its folder.

    Attributes:
        root: Its folder.
        sizes: Bytes of each file by its path below the root.
        is_named: Whether the file was named, and not a folder.
        split: Split that is still to be chosen inside the file.
    """

    place: StoredPath
    root: StoredPath
    sizes: Mapping[str, int]
    is_named: bool
    split: str | None

    def revision(self, content: Content, boxes: Boxes, unknown: Sequence[str]) -> Revision:
        """The dataset with other content of the file; of a named file, only with its images."""
        names = [image.name for image in boxes.images] if self.is_named else self.sizes
        others = [each for each in names if each in self.sizes and each != self.place.name]
        return Revision(self.root, {self.place.name: content}, others, unknown, is_one_file=True)


def files_of(
    place: StoredPath,
    entries: Sequence[Entry],
    extension: str,
    is_file: Callable[[StoredPath], bool],
) -> dict[str, StoredPath]:
    """The files of a format in a folder, by their names without the extension."""
    names = [
        name
        for name, is_dir, _ in sorted(entries)
        if not is_dir and name.lower().endswith(extension) and not name.startswith(".")
    ]
    places = [place.join(name) for name in names[:LOOKED_AT]]
    return {each.name[: -len(extension)]: each for each in places if is_file(each)}


def choose_file(
    location: str, options: DatasetOptions, find: Callable[..., dict[str, StoredPath]]
) -> OneFile:
    """The file at a location, or in the folder there; a split chooses among several.

    Args:
        find: Function that finds the files of a folder from its place and entries.
    """
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        return OneFile(place, place.parent, walk(place.parent), is_named=True, split=options.split)
    root, _, files = find_folder(place, location, find)
    split = options.split if len(files) == 1 else None
    name = choose_split(list(files), options.split if len(files) > 1 else None, location)
    return OneFile(files[name], root, walk(root), is_named=False, split=split)


@dataclass(frozen=True)
class FoundImage:
    """What is found under the name of an image.

    Attributes:
        matches: The images whose paths end most like it: one, several alike, or none.
        rivals: Other names that end as much like the one image.
    """

    matches: Sequence[str] = ()
    rivals: Sequence[str] = ()


class ImagesByName:
    """The images below a folder, found by paths that are of another machine."""

    def __init__(self, root: StoredPath, sizes: Mapping[str, int]) -> None:
        self.root = root
        self._sizes = sizes
        self._paths = defaultdict[str, list[str]](list)
        self._ends = dict[str, Mapping[str, Sequence[str]]]()
        for path in filter(has_image_extension, sizes):
            self._paths[posixpath.basename(path)].append(path)

    def find_all(
        self, names: Iterable[str], plain: Callable[[str], str] = str
    ) -> dict[str, FoundImage]:
        """The images of names, each of which is that of one name alone.

        Of `1/a.png` and `2/a.png`, an image in a folder `2` is the second, and in another folder
        it may be either.

        Args:
            plain: Function that gives another name for one that no image has.
        """
        found = dict[str, Sequence[str]]()
        claims = defaultdict[str, list[tuple[tuple[int, bool], str]]](list)
        for name in dict.fromkeys(names):
            rank, found[name] = self._find(name)
            if not found[name]:
                rank, found[name] = self._find(plain(name))
            if len(found[name]) == 1:
                claims[found[name][0]].append((rank, name))
        lost = dict[str, FoundImage]()
        for claimed in claims.values():
            best = max(rank for rank, _ in claimed)
            first = [name for rank, name in claimed if rank == best]
            for rank, name in claimed:
                if rank < best:
                    lost[name] = FoundImage()
                elif len(first) > 1:
                    lost[name] = FoundImage((), [each for each in first if each != name])
        return {name: lost.get(name, FoundImage(matches)) for name, matches in found.items()}

    def _find(self, name: str) -> tuple[tuple[int, bool], Sequence[str]]:
        """How much the best paths end like a name, and these."""
        plain = posixpath.normpath(name.replace("\\", "/"))
        ends = self._ends_of(posixpath.basename(plain))
        best, length = "", 0
        for end in _ends_of(plain):
            if end not in ends:
                break
            best, length = end, length + 1
        paths = ends.get(best, ())
        usual = [
            path for each in USUAL_FOLDERS if (path := posixpath.join(each, best)) in self._sizes
        ]
        return (length, bool(usual)), usual or paths

    def _ends_of(self, name: str) -> Mapping[str, Sequence[str]]:
        """The images of a name in whatever folders, by each end of their paths."""
        if name in self._ends:
            return self._ends[name]
        found = defaultdict[str, list[str]](list)
        for path in self._paths.get(name, ()):
            for end in _ends_of(path):
                found[end].append(path)
        # Most are a single one, of which that takes longer to keep than to do again.
        if len(self._paths.get(name, ())) > _KEPT:
            self._ends[name] = found
        return found

    def image(self, name: str, found: FoundImage, frame: tuple[float, float] | None) -> BoxedImage:
        """An image, by what was found under its name."""
        if len(found.matches) == 1:
            path = found.matches[0]
            opener: ImageOpener = partial(open_image, self.root.join(path))
            return BoxedImage(path, opener, frame, self._sizes[path])
        reason = f"no image of this name: {name!r}" if name else "no image"
        if found.matches:
            reason = f"several images are called {name!r}: {list_names(found.matches, _NAMED)}"
        elif found.rivals:
            reason = f"one image may be {name!r} or {list_names(found.rivals, _NAMED)}"
        return BoxedImage(name, refusing(reason), frame)


def _ends_of(path: str) -> Iterator[str]:
    """The last part of a path, the last two, and so on."""
    at = len(path)
    while at > 0:
        at = path.rfind("/", 0, at)
        yield path[at + 1 :]
