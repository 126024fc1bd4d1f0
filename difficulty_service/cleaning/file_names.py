"""Safe names of files and folders, made of sample ids and class names from anywhere."""

import hashlib
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from difficulty_service.datasets.class_folders import IGNORED_NAMES
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.images.header import SIGNATURE_BYTES, find_plugin

LONGEST_NAME = 200
"""Number of bytes above which a name is shortened; file systems allow 255."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]")
_EXTENSIONS = {"JPEG": ".jpg", "TIFF": ".tif"}


def safe_folder_name(text: str) -> str:
    """A text as the name of a visible folder; most names stay as they are.

    The folder is never hidden and has no extension of an image, because such folders are not read
    as classes.
    """
    name = _safe(text)
    if has_image_extension(name):
        name = "%2E".join(name.rsplit(".", 1))
    return name


def safe_path(sample_id: str, class_name: str) -> PurePosixPath:
    """Where the image of a sample goes inside the folder of its class.

    The id of a sample in a folder of class folders is its path, of which the part below the class
    is kept. No part is `..`, hidden or absolute.

    Args:
        sample_id: Id of the sample, which may be any text.
        class_name: Class of the sample in its dataset.
    """
    parts = [part for part in sample_id.split("/") if part not in ("", ".", "..")]
    if class_name in parts[:-1]:
        parts = parts[parts.index(class_name) + 1 :]
    *folders, name = parts or ["sample"]
    return PurePosixPath(*map(safe_folder_name, folders), _safe(name))


def extension_of(data: bytes) -> str:
    """The usual extension of an image, by its first bytes.

    Raises:
        ImageError: The format is not known.
    """
    name = find_plugin(data[:SIGNATURE_BYTES])[0]
    return _EXTENSIONS.get(name, f".{name.lower()}")


def first_free(path: PurePosixPath, is_taken: Callable[[PurePosixPath], bool]) -> PurePosixPath:
    """The path, or if it is taken the same with a number, as in `001-2.png`."""
    number, free = 2, path
    while is_taken(free):
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return free


def _safe(text: str) -> str:
    name = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)
    if name.startswith(".") or name in IGNORED_NAMES:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    encoded = name.encode("utf-8", "backslashreplace")
    if len(encoded) > LONGEST_NAME:
        digest = hashlib.sha256(encoded).hexdigest()[:16]
        stem = encoded[: LONGEST_NAME - 40].decode("utf-8", "ignore")
        name = f"{stem}-{digest}{PurePosixPath(name).suffix[:16]}"
    return name or "%"
