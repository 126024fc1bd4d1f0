"""What Linux control groups, and so containers, leave to this process: cores and memory.

Both versions are read, and the groups that contain the process's own: the smallest limit holds.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

UNLIMITED_BYTES = 1 << 60
"""Version 1 has no word for "no limit" of memory, but a number that no machine reaches."""


@dataclass(frozen=True)
class _Mount:
    """A hierarchy of groups as it is mounted.

    Attributes:
        root: The group at the mount point; in a container it is often that of the container.
        controllers: What it limits; empty for version 2, which limits everything.
    """

    root: PurePosixPath
    point: PurePosixPath
    controllers: frozenset[str]

    def folders(self, group: PurePosixPath, system: Path) -> Iterator[Path]:
        """Folder of a group and of each that contains it, the innermost first."""
        point = system / self.point.relative_to("/")
        # A group outside of what is mounted is not to be seen from here; its ancestors may be.
        inside = group.relative_to(self.root) if group.is_relative_to(self.root) else None
        folder = point / (inside or "")
        while folder != point:
            yield folder
            folder = folder.parent
        yield point


def cpu_quota(system: Path = Path("/")) -> float | None:
    """Number of cores whose time the groups allow, such as 0.5; None for no limit.

    Args:
        system: Root folder of the system.
    """
    quotas = (_quota(folder) for folder in _folders("cpu", system))
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit(system: Path = Path("/")) -> int | None:
    """Bytes of memory that the groups allow all their processes together; None for no limit.

    Args:
        system: Root folder of the system.
    """
    limits = (
        _number(folder / name)
        for folder in _folders("memory", system)
        for name in ("memory.limit_in_bytes", "memory.max", "memory.high")
    )
    return min((limit for limit in limits if limit and limit < UNLIMITED_BYTES), default=None)


def _quota(folder: Path) -> float | None:
    version_2 = _words(folder / "cpu.max")
    if version_2:
        quota, period = _parsed(version_2[0]), _parsed(version_2[-1])
    else:
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _folders(controller: str, system: Path) -> Iterator[Path]:
    """Folders of all groups of this process that may limit it by a controller."""
    mounts = list(_mounts(system))
    for line in _lines(system / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        names = frozenset(controllers.split(",")) if controllers else frozenset()
        if names and controller not in names:
            continue
        for mount in mounts:
            if mount.controllers == names or controller in mount.controllers & names:
                yield from mount.folders(PurePosixPath(path), system)


def _mounts(system: Path) -> Iterator[_Mount]:
    for line in _lines(system / "proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        fields, name, options = place.split(" "), kind.split(" ")[0], kind.split(" ")[-1]
        if name in ("cgroup", "cgroup2"):
            controllers = frozenset(options.split(",") if name == "cgroup" else ())
            root, point = (PurePosixPath(_plain(field)) for field in fields[3:5])
            yield _Mount(root, point, controllers)


def _plain(path: str) -> str:
    """A path without the octal codes by which the kernel writes spaces and the like."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def _lines(path: Path) -> list[str]:
    """Lines of a file; none where there is no such file, as on other systems than Linux."""
    with suppress(OSError):
        return path.read_text(errors="surrogateescape").splitlines()
    return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _number(path: Path) -> int | None:
    words = _words(path)
    return _parsed(words[0]) if words else None


def _parsed(word: str) -> int | None:
    with suppress(ValueError):
        return int(word)
    return None  # "max"
