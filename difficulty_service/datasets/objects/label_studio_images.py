"""Which image of a task of Label Studio a region is on.

An export has no interface of the project, which says of each object tag which value of the data it
shows. Tags are mostly called as these values are, so a region whose tag is called otherwise is only
read where one image is left that it can be on.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from difficulty_service.base.wording import list_names
from difficulty_service.datasets.image_openers import has_image_extension

LOCAL_FILES = "/data/local-files/"
"""Where Label Studio serves files of its machine, whose path is in the query."""

RESOLVED = ("/resolve/", "/presign/")
"""Where it leads to files of a storage, whose address is in the query as base64."""

UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")
"""What Label Studio puts before the name of a file that was uploaded."""

Json = Mapping[str, Any]
Addresses = Mapping[str, Sequence[str]]
"""Addresses of the images of a task by the key of its data; several where it has pages."""

Target = tuple[str, int]
"""Key of the data, and number of the page."""

_IMAGE = re.compile(r"img|picture|photo|pic(?=\d|$)")
_TYPE = re.compile(r"image|url|tag")
_PREVIEW = re.compile(r"thumb|preview|icon")


def addresses_of(data: Json, tags: set[str]) -> dict[str, Sequence[str]]:
    """The images of a task: what looks like one, or is called as a tag that has regions."""
    found = dict[str, Sequence[str]]()
    for key, value in data.items():
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(each, str) and each for each in texts):
            continue
        if key in tags or all(has_image_extension(path_of(each)) for each in texts):
            found[key] = texts
    return found or {"image": [str(data.get("image") or "")]}


def path_of(address: str) -> str:
    """The path in an address, without the host and what marks an uploaded file."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    query = parse_qs(parts.query)
    if parts.path.endswith(LOCAL_FILES):
        return query.get("d", [""])[0]
    if parts.path.endswith(RESOLVED) and "fileuri" in query:
        try:
            return path_of(urlsafe_b64decode(query["fileuri"][0]).decode())
        except (ValueError, RecursionError):
            return address
    return unquote(parts.path)


def target_of(result: Json, addresses: Addresses) -> Target | str:
    """The image that a result is on, or the reason why that is not known."""
    tag = str(result.get("to_name") or "")
    key = main_key(addresses, tag)
    if key is None:
        names = list_names([*addresses])
        return f"its task has several images ({names}), and none is called {tag!r} as its tag is"
    pages = len(addresses[key])
    page = result.get("item_index")
    if page is None:
        return (key, 0) if pages == 1 else f"it does not say on which of {pages} pages it is"
    if not isinstance(page, int) or not 0 <= page < pages:
        return f"its page {str(page)[:20]!r} is none of the {pages} of its task"
    return key, page


def main_key(addresses: Addresses, tag: str = "") -> str | None:
    """The key of the image that a tag shows; None where it may be several."""
    if tag in addresses:
        return tag
    alike = _alike(addresses, tag) or _alike(addresses, tag, _TYPE)
    for keys in (alike, [*addresses]):
        if len(keys) == 1:
            return keys[0]
    keys = [key for key in addresses if not _PREVIEW.search(key.lower())]
    if len({tuple(map(_file_name, addresses[key])) for key in keys}) == 1:
        return keys[0]
    usual = _alike(addresses, "image")
    return usual[0] if len(usual) == 1 else None


def _alike(
    addresses: Addresses, name: str, left_out: re.Pattern[str] = re.compile("$")
) -> list[str]:
    """The keys that differ from a name in its writing alone, such as `image_1` from `img1`.

    Args:
        left_out: Words without which they are compared, as long as others are left.
    """
    wanted = left_out.sub("", _plain(name))
    return [key for key in addresses if wanted and left_out.sub("", _plain(key)) == wanted]


def _plain(name: str) -> str:
    return _IMAGE.sub("image", re.sub(r"[\W_]", "", name.lower()))


def _file_name(address: str) -> str:
    return UPLOADED.sub("", path_of(address).rpartition("/")[2])
