"""Datasets in a tar or zip of class folders, which is read without extracting it."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.archive_index import Member, read_archive
from difficulty_service.datasets.class_folders import (
    ClassFolders,
    Tree,
    find_class_folders,
    strays,
    visible,
)
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.image_openers import (
    extension_problem,
    has_image_extension,
    open_bytes,
    refusing,
)
from difficulty_service.datasets.listing import build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import Entry, StoredFile, StoredPath, open_file
from difficulty_service.errors import DatasetError, DuplicateSampleId, ImageError

MAX_FOLDERS = 1_000_000

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"


@dataclass(frozen=True)
class _Samples:
    """The samples of an archive.

    Attributes:
        place: Path of the archive.
        members: Member of each sample; None for an empty folder.
        paths: Paths of the samples in the archive.
    """

    place: StoredPath
    members: list[Member | None]
    paths: list[str]


def open_archive(location: str, options: DatasetOptions) -> Dataset:
    """Opens a tar or zip whose folders, possibly inside a single one, are the classes.

    Args:
        location: Path or URI of one archive.
        options: Options, of which the split, the limit and the shard size apply.

    Raises:
        DatasetError: The archive is damaged or has no class folders; see `read_archive`.
        DuplicateSampleId: Two members have the same path.
    """
    check_options(
        options, "an archive of class folders", ("image_column", "label_column", "id_column")
    )
    files = find_files(location, options.boundary)
    if len(files) > 1:
        raise DatasetError(
            f"{location!r} matches {len(files)} archives, the first is {files[0].place.name!r}",
            "expected one archive that holds all class folders",
            parameter="location",
        )
    members = _by_path(files[0])
    folders = _folders(members, files[0].place.name)
    top = _single_top(folders, options.split)
    classes = find_class_folders(_tree(folders, top), location, options.split)
    classes = _below(classes, top, folders[""])
    samples = _Samples(files[0].place, [members.get(path) for path in classes.paths], classes.paths)
    listing = replace(classes.listing((files[0].size,)), containers=[files[0].place])
    open_at = partial(_open_at, samples)
    return build_dataset(location, options, listing, open_at, classes.describe)


def _by_path(file: StoredFile) -> dict[str, Member]:
    """Members by path; the paths of folders end with a slash."""
    members: dict[str, Member] = {}
    for member in read_archive(file):
        key = f"{member.path}/" if member.is_folder else member.path
        if key in members and not member.is_folder:
            raise DuplicateSampleId(
                f"{file.place.name!r} has two members {member.path!r}, at bytes "
                f"{members[key].offset:,} and {member.offset:,}",
                "ids must be unique",
            )
        members[key] = member
    return members


def _folders(members: dict[str, Member], archive_name: str) -> dict[str, list[Entry]]:
    """The entries directly in each folder, including folders that have no member."""
    folders: dict[str, list[Entry]] = {"": []}
    for key, member in members.items():
        path = key.rstrip("/")
        if not path:
            continue
        folder, _, name = path.rpartition("/")
        _add_folder(folders, path if member.is_folder else folder)
        if not member.is_folder:
            folders[folder].append((name, False, member.size))
        if len(folders) > MAX_FOLDERS:
            raise DatasetError(f"{archive_name!r} has more than {MAX_FOLDERS:,} folders")
    return folders


def _add_folder(folders: dict[str, list[Entry]], path: str) -> None:
    """Adds a folder and its parents, each with an entry in its own parent."""
    if path in folders:
        return
    above, _, name = path.rpartition("/")
    _add_folder(folders, above)
    folders[above].append((name, True, 0))
    folders[path] = []


def _single_top(folders: dict[str, list[Entry]], split: str | None) -> str:
    """The single top-level folder of the class folders, with a slash; "" if there is none."""
    names = [name for name, is_folder, _ in visible(folders[""]) if is_folder]
    if len(names) != 1 or names[0] == split:
        return ""
    inside = visible(folders[names[0]])
    has_images = any(not folder and has_image_extension(name) for name, folder, _ in inside)
    has_folders = any(folder for _, folder, _ in inside)
    return f"{names[0]}/" if has_folders and not has_images else ""


def _tree(folders: dict[str, list[Entry]], top: str) -> Tree:
    return Tree(
        lambda folder: visible(folders.get(f"{top}{folder}".rstrip("/"), [])),
        lambda folder: folder,
    )


def _below(classes: ClassFolders, top: str, root: list[Entry]) -> ClassFolders:
    """Class folders inside a top-level folder, with their paths and strays in the archive."""
    if not top:
        return classes
    return replace(
        classes,
        paths=[top + path for path in classes.paths],
        skipped=[
            *strays(sorted(visible(root))),
            *((top + path, reason) for path, reason in classes.skipped),
        ],
    )


def _open_at(samples: _Samples, positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        yield _opener(samples.place, samples.members[position], samples.paths[position])


def _opener(place: StoredPath, member: Member | None, path: str) -> ImageOpener:
    if member is None:
        return refusing("a directory, not an image file")
    if member.problem is not None:
        return refusing(member.problem)
    if not has_image_extension(path):
        return refusing(extension_problem(path))
    return partial(_open_member, place, member)


def _open_member(place: StoredPath, member: Member) -> BinaryIO:
    try:
        with open_file(place) as archive:
            archive.seek(member.offset)
            if member.checksum is not None:
                _skip_local_header(archive)
            data = archive.read(member.stored)
    except (OSError, ValueError) as error:
        raise ImageError(f"its archive cannot be read: {error}") from error
    if len(data) < member.stored:
        raise ImageError("its archive has become shorter since it was listed")
    return open_bytes(_unpack(data, member))


def _skip_local_header(archive: BinaryIO) -> None:
    header = archive.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        raise ImageError("its archive ends before its data")
    signature, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    if signature != _LOCAL_SIGNATURE:
        raise ImageError("damaged: it is not at the offset in the archive's directory")
    archive.seek(name_length + extra_length, 1)


def _unpack(data: bytes, member: Member) -> bytes:
    """Unpacks a member, but no more bytes than the archive's directory gives as its size."""
    if member.is_deflated:
        try:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, member.size + 1)
        except zlib.error as error:
            raise ImageError(f"damaged inside its archive: {error}") from error
    if len(data) != member.size:
        raise ImageError("its size is not the one in the archive's directory")
    if member.checksum is not None and zlib.crc32(data) != member.checksum:
        raise ImageError("damaged inside its archive: the checksum differs")
    return data
