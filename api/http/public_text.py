"""Messages for clients, without paths, addresses and credentials of this server."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, unquote, urlsplit

from api.settings import Settings
from difficulty_service.datasets.storage import is_uri

HIDDEN = "[hidden]"

SHORTEST_SECRET = 4
"""Characters of the shortest value that is hidden wherever it occurs; `http` is not one."""

PLAIN_VALUES = frozenset(("http", "https", "true", "false"))
"""Values in the query of a root that are hidden with its address only."""

_FOLDER, _FILE = r"(?:[^\s/'\":;,()]+/)", r"[^\s/'\":;,()]*"
# A path begins a text or a word, or follows what opens or divides; after a sign it has a folder.
# Anywhere else a slash is within a sample id such as `cats (old)/1.jpg` or `a=/1.jpg`. Addresses of
# this service are no paths of it, and neither is a `/` alone.
_ABSOLUTE_PATH = re.compile(
    rf"(?:^|(?<=[\s'\"`(\[{{,;]))(?!/v1/|/`)~?/{_FOLDER}*{_FILE}"
    rf"|(?<=[<>=|])(?!/v1/)~?/{_FOLDER}+{_FILE}"
)


def public_names(settings: Settings) -> dict[str, str]:
    """Public names of the roots by their paths and addresses, and of their credentials."""
    names: dict[str, str] = {}
    for name, root in settings.roots.items():
        if is_uri(root):
            names |= dict.fromkeys(_secrets_of(root), HIDDEN)
            names |= dict.fromkeys(_addresses_of(root), name)
        else:
            # Messages may name a folder as configured, or as an absolute or resolved path.
            paths = (root, str(Path(root).absolute()), str(Path(root).resolve()))
            names |= {path.rstrip("/"): name for path in paths}
    return {text: name for text, name in names.items() if text}


def hide_paths(text: str, names: Mapping[str, str]) -> str:
    """A text for clients, without paths of this server.

    Known paths and addresses become their public names; of all others only the last part remains.
    """
    for private in sorted(names, key=len, reverse=True):
        text = text.replace(private, names[private])
    return _ABSOLUTE_PATH.sub(lambda match: PurePosixPath(match[0]).name or match[0], text)


def _addresses_of(root: str) -> Iterator[str]:
    """The forms in which messages of file systems name a root."""
    parts = urlsplit(root)
    path = parts.path.rstrip("/")
    yield root.rstrip("/")
    yield root.partition("?")[0].rstrip("/")
    for host in (parts.netloc, parts.netloc.rpartition("@")[2]):
        yield f"{parts.scheme}://{host}{path}"
        yield f"{host}{path}"
    if path.count("/") > 1:  # one word alone may occur in any text
        yield path


def _secrets_of(root: str) -> Iterator[str]:
    parts = urlsplit(root)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    values = {value for _, value in parse_qsl(parts.query)} - PLAIN_VALUES
    for value in {user, password, *values}:
        if len(value) >= SHORTEST_SECRET:
            yield value
            yield unquote(value)
