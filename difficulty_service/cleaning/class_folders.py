"""Writes the images of a cleaned dataset as one folder per class.

Safe names of files and folders, made of sample ids and class names from anywhere.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa

from difficulty_service.base.errors import ImageError
from difficulty_service.datasets.folder_tree import IGNORED_NAMES
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.images.header import SIGNATURE_BYTES, find_plugin
from difficulty_service.pages.stored_images import StoredImage

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
    """
    parts = [part for part in sample_id.split("/") if part not in ("", ".", "..")]
    if class_name in parts[:-1]:
        parts = parts[parts.index(class_name) + 1 :]
    *folders, name = parts or ["sample"]
    return PurePosixPath(*map(safe_folder_name, folders), _safe(name))


def extension_of(data: bytes) -> str:
    """The usual extension of an image, by its first bytes."""
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


@dataclass(frozen=True)
class WrittenImages:
    """Paths of written images by sample id, and the number of those without a file to link to."""

    paths: dict[str, str]
    num_copied: int


class FolderNames:
    """Chooses the path of each image so that no two are the same and none leaves the folder.

    A sample that keeps its class also keeps its path below the class; another one gives way to it.
    """

    def __init__(self, rows: pa.Table) -> None:
        columns = (rows[name].to_pylist() for name in ("sample_id", "label", "original_label"))
        self._samples = {
            sample_id: (label, original)
            for sample_id, label, original in zip(*columns, strict=True)
        }
        self._folders: dict[str, PurePosixPath] = {}
        for label in dict.fromkeys(label for label, _ in self._samples.values()):
            free = first_free(
                PurePosixPath(safe_folder_name(label)), lambda path: path in self._folders.values()
            )
            self._folders[label] = free
        self._reserved: dict[PurePosixPath, str] = {}
        for sample_id, (label, original) in self._samples.items():
            if label == original and has_image_extension(sample_id):
                self._reserved.setdefault(self._wanted(sample_id), sample_id)

    def renamed_classes(self) -> dict[str, str]:
        """Classes whose folder has another name than they, by class."""
        return {
            label: str(folder) for label, folder in self._folders.items() if str(folder) != label
        }

    def path_of(self, sample_id: str, data: bytes) -> PurePosixPath:
        """The path of an image, which no other one gets.

        The extension is taken from the first bytes where the id has none.
        """
        path = self._wanted(sample_id)
        if not has_image_extension(path.name):
            path = path.with_name(path.name + extension_of(data))
        chosen = first_free(path, lambda free: self._reserved.get(free, sample_id) != sample_id)
        self._reserved[chosen] = sample_id
        return chosen

    def _wanted(self, sample_id: str) -> PurePosixPath:
        label, original = self._samples[sample_id]
        return self._folders[label] / safe_path(sample_id, original)


def write_class_folders(
    folder: Path,
    names: FolderNames,
    images: Iterable[tuple[str, StoredImage]],
    on_problem: Callable[[str, str], None],
    *,
    link: bool,
) -> WrittenImages:
    """Copies or links images into the folders of their classes."""
    paths: dict[str, str] = {}
    num_copied = 0
    for sample_id, image in images:
        try:
            path = names.path_of(sample_id, _head(image))
        except ImageError as error:
            on_problem(sample_id, str(error))
            continue
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if image.path is None:
            num_copied += link
            target.write_bytes(image.data)
        elif link:
            target.symlink_to(image.path)
        else:
            shutil.copyfile(image.path, target)
        paths[sample_id] = str(path)
    return WrittenImages(paths, num_copied)


def _head(image: StoredImage) -> bytes:
    if image.path is None:
        return image.data
    with image.path.open("rb") as file:
        return file.read(64)
