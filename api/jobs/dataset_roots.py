"""Resolves the datasets that requests name: those below the configured roots, and no others."""

import re
from functools import partial
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from api.http.problems import Problem
from api.jobs.remote_images import fetch_image, fetch_limits
from api.settings import Settings
from difficulty_service.datasets.boundary import Boundary
from difficulty_service.datasets.storage import boundary_at, is_uri

MAX_DECODINGS = 5
"""Nested percent-encoding beyond this is refused."""

_PLAIN = "*[]!$&'()+,;=:@~ "  # characters that `storage.resolve` takes literally
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")


def resolve_dataset(settings: Settings, root: str, path: str) -> str:
    """Location of a dataset that a request names.

    `root_boundary` keeps links and URIs inside the dataset from leading out of the root.

    Args:
        settings: Settings with the roots.
        root: Name of a root.
        path: Relative path, its parts separated by `/`; may have wildcards, "" is the root itself.

    Returns:
        A location for `open_dataset`, which clients must not see.

    Raises:
        Problem: There is no such root, or the path could lead out of it.
    """
    location = _root(settings, root)
    decoded = _decode(path)
    parts = PurePosixPath(decoded).parts
    is_unsafe = (
        _UNSAFE.search(decoded) is not None
        or decoded.startswith(("/", "~"))
        or ".." in parts
        or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", decoded) is not None
    )
    # The path that the storage decodes must be the one that was checked here.
    if is_unsafe or (is_uri(location) and decoded != path) or ("?" in path and is_uri(location)):
        raise Problem(
            422,
            "invalid-request",
            f"the path {path[:200]!r} could lead out of the root {root!r}",
            "give a relative path below the root, without `..`, schemes, backslashes or encoding",
            field="dataset.path",
        )
    below = PurePosixPath(path).parts
    if not is_uri(location):
        return "/".join([location.rstrip("/"), *below])
    # The URI of a root may have a query, such as its server; requests must not add to it.
    folder, question_mark, query = location.partition("?")
    quoted = [quote(part, safe=_PLAIN) for part in below]
    return "/".join([folder.rstrip("/"), *quoted]) + question_mark + query


def root_boundary(settings: Settings, root: str) -> Boundary:
    """Boundary that reading a dataset of this root must not leave.

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
            f"there is no root {name[:100]!r}; the roots are: {known}",
            "name one of them, or have the operator add it to DIFFICULTY_ROOTS",
            field="dataset.root",
        )
    return settings.roots[name]


def _decode(path: str) -> str:
    """The path with every layer of percent-encoding removed."""
    for _ in range(MAX_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            return path
        path = decoded
    return "../"  # refused: that many layers hide something
