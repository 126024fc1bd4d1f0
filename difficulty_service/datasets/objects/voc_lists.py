"""The lists of images of Pascal VOC: which of them are splits, and what their lines name.

A line is the path of an image without its extension, which may have blanks. Lists of a class have a
column with 1, -1 or 0 behind it, and are no splits.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice

from difficulty_service.base.wording import list_names
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.objects.files import read_file, without_mark
from difficulty_service.datasets.sample import Skipped
from difficulty_service.datasets.storage import StoredPath

FOLDERS = ("imagesets/main", "imagesets")
"""Folders of lists, of which the first that has any counts."""

EXTENSION = ".txt"

_COLUMN = re.compile(r"(.*\S)\s+(?:-1|0|1)")
_NAMED = 3
_LOOKED_AT = 1000


class Stems:
    """Files by their paths without extensions, from the folder of their kind."""

    def __init__(self, files: Iterable[str], folders: Iterable[str]) -> None:
        """Takes files, and the names of folders in which they usually are."""
        usual = frozenset(map(str.lower, folders))
        self._paths = defaultdict[str, dict[str, str]](dict)
        for file in files:
            stem = posixpath.splitext(file)[0]
            first, _, rest = stem.partition("/")
            stem = rest if rest and first.lower() in usual else stem
            self._paths[posixpath.basename(stem)][stem] = file

    def find(self, line: str) -> list[str]:
        """The files that a line names: one, several alike, or none."""
        path = posixpath.normpath(line.replace("\\", "/"))
        if has_image_extension(path) or path.lower().endswith(".xml"):
            path = posixpath.splitext(path)[0]
        stems = self._paths.get(posixpath.basename(path), {})
        if path in stems:
            return [stems[path]]
        return [
            file
            for stem, file in stems.items()
            if stem.endswith(f"/{path}") or path.endswith(f"/{stem}")
        ]


def find_lists(root: StoredPath, files: Iterable[str], known: Stems) -> dict[str, str]:
    """The lists that are splits, by what these are called."""
    texts = defaultdict[str, list[str]](list)
    for name in files:
        if name.endswith(EXTENSION):
            texts[posixpath.dirname(name).lower()].append(name)
    lists = next((texts[folder] for folder in FOLDERS if folder in texts), [])
    found = {posixpath.basename(name).removesuffix(EXTENSION): name for name in lists}
    return {
        name: file
        for name, file in found.items()
        if "_" not in name or not _is_of_class(_lines(root, file), known)
    }


def _lines(root: StoredPath, file: str) -> list[str]:
    lines = without_mark(read_file(root.join(file))).decode(errors="replace").splitlines()
    return [line for line in map(str.strip, lines) if line]


def _is_of_class(lines: Iterable[str], known: Stems) -> bool:
    """Whether the first lines have a column, which is no part of a name."""
    first = islice(lines, _LOOKED_AT)
    return all(_COLUMN.fullmatch(line) is not None and not known.find(line) for line in first)


def read_list(
    root: StoredPath, file: str, annotations: Stems, images: Stems
) -> tuple[set[str], set[str], list[Skipped]]:
    """The annotations that a list names, its images without any, and what is neither."""
    found, bare, skipped = set[str](), set[str](), list[Skipped]()
    for line in _lines(root, file):
        column = _COLUMN.fullmatch(line)
        names = [line] if column is None else [line, column[1]]
        kinds = ((annotations, found), (images, bare))
        tried = ((stems.find(name), into) for stems, into in kinds for name in names)
        matches, into = next((each for each in tried if each[0]), ([], bare))
        if len(matches) == 1:
            into.add(matches[0])
        elif matches:
            reason = f"several files are called so in {file!r}: {list_names(matches, _NAMED)}"
            skipped.append((line, reason))
        else:
            skipped.append((line, f"it is in {file!r}, and no such file is there"))
    return found, bare, skipped
