"""Which datasets a request may name: those below the configured roots, and nothing else."""

import re
from functools import partial
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from api.http.problems import Problem
from api.jobs.remote_images import fetch_image, fetch_limits
from api.settings import Settings
from difficulty_service.datasets.boundary import Boundary
from difficulty_service.datasets.storage import boundary_at, is_uri

MOST_DECODINGS = 5
"""Nested percent-encoding beyond this is refused."""

_PLAIN = "*[]!$&'()+,;=:@~ "  # what `storage.resolve` takes as it is
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")


def resolve_dataset(settings: Settings, root: str, path: str) -> str:
    """Where a dataset lies that a request names.

    That nothing below it leads out again is the matter of `root_boundary`.

    Args:
        settings: Hold the roots.
        root: Name of one of them.
        path: Relative, with `/` between its parts; wildcards are allowed, "" is the root itself.

    Returns:
        A location as `open_dataset` takes it; not for anybody outside.

    Raises:
        Problem: There is no such root, or the path could lead out of it.
    """
    place = _root(settings, root)
    decoded = _decode(path)
    parts = PurePosixPath(decoded).parts
    wrong = (
        _UNSAFE.search(decoded) is not None
        or decoded.startswith(("/", "~"))
        or ".." in parts
        or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", decoded) is not None
    )
    # What storage decodes on its own must not differ from what was checked here.
    if wrong or (is_uri(place) and decoded != path) or ("?" in path and is_uri(place)):
        raise Problem(
            422,
            "invalid-request",
            f"the path {path[:200]!r} could lead out of the root {root!r}",
            "give a relative path below the root, without `..`, schemes, backslashes or encoding",
            field="dataset.path",
        )
    below = PurePosixPath(path).parts
    if not is_uri(place):
        return "/".join([place.rstrip("/"), *below])
    # A root may bring a query, such as its server; what requests name is never part of one.
    folder, question_mark, query = place.partition("?")
    quoted = [quote(part, safe=_PLAIN) for part in below]
    return "/".join([folder.rstrip("/"), *quoted]) + question_mark + query


def root_boundary(settings: Settings, root: str) -> Boundary:
    """What reading a dataset of this root may not leave.

    Raises:
        Problem: There is no such root.
    """
    fetch = partial(fetch_image, limits=fetch_limits(settings)) if settings.remote_images else None
    return boundary_at(_root(settings, root), fetch)


def _root(settings: Settings, name: str) -> str:
    if name not in settings.roots:
        known = ", ".join(sorted(settings.roots)) or "none"
        raise Problem(
            422,
            "invalid-request",
            f"there is no root {name[:100]!r}; there are: {known}",
            "name one of them, or have the operator add it to DIFFICULTY_ROOTS",
            field="dataset.root",
        )
    return settings.roots[name]


def _decode(path: str) -> str:
    """The path with every layer of percent-encoding taken off."""
    for _ in range(MOST_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            return path
        path = decoded
    return "../"  # so many layers hide something
