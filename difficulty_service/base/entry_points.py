"""Entry points of installed packages, which are read once: there are hundreds of files to read."""

import sys
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoints
from pathlib import Path


def entry_points_of(group: str) -> EntryPoints:
    """Those of a group; they are read again when a package was added to a folder of the path."""
    return _read(frozenset((entry, _changed_at(entry)) for entry in sys.path)).select(group=group)


@lru_cache(maxsize=1)
def _read(folders: frozenset[tuple[str, int | None]]) -> EntryPoints:  # noqa: ARG001 - a key
    found = (each for package in metadata.distributions() for each in package.entry_points)
    return EntryPoints(dict.fromkeys(found))  # a folder may be on the path twice


def _changed_at(folder: str) -> int | None:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return None
