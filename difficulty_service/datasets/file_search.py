"""The files of a location: a single file, the files in a folder, or the matches of a glob.

A glob is matched part by part, in a time that is linear in the length of the path. Braces name
several locations, as shells and WebDataset have them: `{0000..0146}` and `{train,val}`.
"""

import fnmatch
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import FileSelector, FileType

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.splits import (
    SPLITS,
    choose_split,
    split_of_file,
    split_of_folder,
)
from difficulty_service.datasets.storage import (
    Boundary,
    StoredFile,
    StoredPath,
    common_folder,
    is_folder,
    list_folder,
    reading,
    resolve,
)

WILDCARD = re.compile(r"[*?[]")
RECURSIVE = "**"
MAX_RECURSIVE = 4

States = frozenset[int]
"""Numbers of the parts of a glob that may come next; the number of all parts if none need to."""


@dataclass(frozen=True)
class GlobPattern:
    """The parts of a glob between slashes; `**` stands for any number of folders, several are one.

    Names that begin with a dot are matched only by parts that do so as well.
    """

    parts: tuple[str, ...]

    @property
    def start(self) -> States:
        """The states before the first part of a path."""
        return self._with_empty_matches({0})

    def step(self, states: States, name: str) -> States:
        """The states after one more part of a path; none where it cannot match any more."""
        hidden = name.startswith(".")
        after = set()
        for state in states:
            part = self.parts[state] if state < len(self.parts) else None
            if part is None or (hidden and not part.startswith(".")):
                continue
            if part == RECURSIVE:
                after.add(state)
                if state + 1 == len(self.parts):  # the files below a folder, not the folder
                    after.add(state + 1)
            elif fnmatch.fnmatchcase(name, part):
                after.add(state + 1)
        return self._with_empty_matches(after)

    def leads_on(self, states: States) -> bool:
        """Whether a path in a folder with these states may match."""
        return any(state < len(self.parts) for state in states)

    def accepts(self, states: States) -> bool:
        """Whether the path so far matches."""
        return len(self.parts) in states

    def matches(self, path: str) -> bool:
        """Whether a path matches, relative to the folder that the glob is relative to."""
        states = self.start
        for name in path.strip("/").split("/"):
            states = self.step(states, name)
        return self.accepts(states)

    def _with_empty_matches(self, states: set[int]) -> States:
        reached = set(states)
        for state in states:
            following = state
            while self.parts[following:-1] and self.parts[following] == RECURSIVE:
                following += 1
                reached.add(following)
        return frozenset(reached)


def parse_glob(pattern: str) -> GlobPattern:
    """Parses a glob, which may have up to four `**`."""
    parts: list[str] = []
    for part in pattern.strip("/").split("/"):
        if part != RECURSIVE or parts[-1:] != [RECURSIVE]:
            parts.append(part)
    # Those in a row count one by one: a hundred of them are a mistake, whatever they match.
    number = pattern.split("/").count(RECURSIVE)
    if number > MAX_RECURSIVE:
        raise DatasetError.of_location(
            f"the pattern has {number} times `**`, more than the {MAX_RECURSIVE} allowed",
            "name a folder nearer to the files",
        )
    return GlobPattern(tuple(parts))


FolderId = tuple[int, int]
"""Device and inode of a folder."""


def find_files(location: str, boundary: Boundary | None = None) -> list[StoredFile]:
    """The files at a location, directly in a folder or matching a glob, sorted by path.

    Matches of a glob in folders outside the boundary are ignored, so that their names are not
    disclosed.
    """
    place = resolve(location, boundary)
    each = expand_braces(location)
    if each != [location] and is_folder(place, location) is None:
        found = {file.place.path: file for one in each for file in find_files(one, boundary)}
        return sorted(found.values(), key=lambda file: file.place.path)
    with reading(repr(location)):
        files = _find(place, location)
        if boundary is not None:
            files = [f for f in files if f.place.parent.is_inside or f.place.is_inside]
            for file in files:
                file.place.require_inside()
    if files:
        return sorted(files, key=lambda file: file.place.path)
    if WILDCARD.search(place.path):
        raise DatasetError.of_location(
            f"no file matches {location!r}", "check the folder and the pattern"
        )
    is_there = is_folder(place, location)
    raise DatasetError.of_location(
        f"{location!r} {'has no file of its own' if is_there else 'does not exist'}",
        "name a file in it" if is_there else "check the path or URI",
    )


_BRACES = re.compile(r"\{(?:(\d{1,9})\.\.(\d{1,9})|([^{}]*,[^{}]*))\}")
MAX_EXPANDED = 10_000
"""Number of locations that braces may stand for."""


def expand_braces(location: str) -> list[str]:
    """The locations that braces stand for, in order; the location itself where it has none."""
    pending, done = [location], list[str]()
    while pending:
        one = pending.pop()
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
            continue
        parts = _alternatives(found)
        if len(pending) + len(done) + len(parts) > MAX_EXPANDED:
            raise DatasetError.of_location(
                f"the braces of {location!r} stand for more than {MAX_EXPANDED:,} files",
                "use a wildcard such as `*`",
            )
        pending += [one[: found.start()] + part + one[found.end() :] for part in reversed(parts)]
    return done


def _alternatives(braces: re.Match[str]) -> list[str]:
    first, last, listed = braces.groups()
    if listed is not None:
        return [part.strip() for part in listed.split(",")]
    numbers = range(int(first), min(int(last), int(first) + MAX_EXPANDED) + 1)
    return [str(number).zfill(len(first)) for number in numbers]


def find_files_ending(
    location: str, boundary: Boundary | None, endings: tuple[str, ...], kind: str
) -> list[StoredFile]:
    """The files at a location whose names have one of the endings; there must be one."""
    files = find_files(location, boundary)
    files = [file for file in files if file.place.name.lower().endswith(endings)]
    if not files:
        raise DatasetError.of_location(
            f"{location!r} holds no {kind}", f"expected files ending in {', '.join(endings)}"
        )
    return files


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split.

    Attributes:
        split: Split that is still to be chosen, inside the files; None where they are of one.
        common: The split that all are of by their names; None where they are of none or several.
    """

    files: list[StoredFile]
    split: str | None
    common: str | None = None


def files_of_split(
    files: list[StoredFile], split: str | None, location: str, *, inside: bool
) -> SplitFiles:
    """The files of a split, where their names or those of their folders say which they are of.

    Files of different splits are not merged, unless `split` names several: `train+test`.

    Args:
        inside: Whether a file itself may say of which split each of its rows is.

    Raises:
        DatasetError: The files are of several splits and none is chosen, or not one of them.
    """
    folder = common_folder(files)
    splits = {
        file.place.path: _split_of(posixpath.relpath(file.place.path, folder)) for file in files
    }
    known = [each for each in SPLITS if each in splits.values()]
    others = [file for file in files if splits[file.place.path] is None]
    common = known[0] if len(known) == 1 and not others else None
    if inside and common is not None and split is not None:
        return SplitFiles(files, split, common)
    if split is None and len(known) == 1 and others:
        own = next(file for file in files if file not in others)
        raise DatasetError.of_location(
            f"{location!r} holds files of the split {known[0]!r}, such as {own.place.name!r}, and "
            f"others, such as {others[0].place.name!r}",
            "name the files that are meant, or choose the split as ",
            Setting("split", known[0]),
        )
    if not known or (split is None and len(known) == 1):
        return SplitFiles(files, split, common)
    names = [None] if split is None else split.split("+")
    chosen = {choose_split(known, each, location) for each in names}
    return SplitFiles([file for file in files if splits[file.place.path] in chosen], None)


def _split_of(path: str) -> str | None:
    """The split of a file by its name, or else by the nearest folder that is called as one."""
    folders = path.split("/")[-2::-1]
    return split_of_file(path) or next(filter(None, map(split_of_folder, folders)), None)


def _find(place: StoredPath, location: str) -> list[StoredFile]:
    folder = is_folder(place, location)
    if folder:
        return [
            StoredFile(place.join(name), size)
            for name, is_dir, size in list_folder(place)
            if not is_dir and not name.startswith(".")
        ]
    if folder is not None:
        return [StoredFile(place, int(place.filesystem.get_file_info(place.path).size or 0))]
    first = WILDCARD.search(place.path)
    if first is None:
        return []
    start = posixpath.dirname(place.path[: first.start()])
    pattern = parse_glob(place.path[len(start) :])
    base = StoredPath(place.filesystem, start, place.boundary)
    return _glob_local(base, pattern) if place.is_local else _glob_remote(base, pattern)


def _glob_local(base: StoredPath, pattern: GlobPattern) -> list[StoredFile]:
    """The files below a folder that match; enters no folder in which none can."""
    found: list[StoredFile] = []
    waiting = [(base, pattern.start, frozenset[FolderId]())]
    while waiting:
        folder, states, above = waiting.pop()
        try:
            status = Path(folder.path).stat()
            entries = list_folder(folder)
        except OSError:  # not a folder, not readable, or outside of the boundary
            continue
        here = (status.st_dev, status.st_ino)
        if here in above:  # a link to a folder above
            continue
        for name, is_dir, size in entries:
            after = pattern.step(states, name)
            if is_dir and pattern.leads_on(after):
                waiting.append((folder.join(name), after, above | {here}))
            elif not is_dir and pattern.accepts(after) and Path(folder.path, name).is_file():
                found.append(StoredFile(folder.join(name), size))
    return found


def _glob_remote(base: StoredPath, pattern: GlobPattern) -> list[StoredFile]:
    recursive = len(pattern.parts) > 1 or RECURSIVE in pattern.parts
    selector = FileSelector(base.path, allow_not_found=True, recursive=recursive)
    return [
        StoredFile(StoredPath(base.filesystem, info.path, base.boundary), info.size)
        for info in base.filesystem.get_file_info(selector)
        if info.type == FileType.File and pattern.matches(info.path[len(base.path) :])
    ]
