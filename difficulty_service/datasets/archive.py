"""A tar or zip file of class folders: a folder of images as one file, which is never extracted."""

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
    visible,
)
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.image_openers import (
    has_image_extension,
    open_bytes,
    refusing,
    why_not_by_name,
)
from difficulty_service.datasets.listing import build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import Entry, StoredFile, StoredPath, open_file
from difficulty_service.errors import DatasetError, DuplicateSampleId, ImageError

MAX_FOLDERS = 1_000_000

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"


@dataclass(frozen=True)
class _Members:
    """The samples of an archive.

    Attributes:
        place: Of the archive.
        of: Each sample's member; None for a folder without content.
        paths: Of the samples in the archive.
    """

    place: StoredPath
    of: list[Member | None]
    paths: list[str]


def open_archive(location: str, options: DatasetOptions) -> Dataset:
    """Opens a tar or zip whose folders, perhaps inside a single one, are the classes.

    Args:
        location: Path or URI of one archive.
        options: Split, limit and shard size are used.

    Raises:
        DatasetError: It is damaged or has no class folders; see `read_archive`.
        DuplicateSampleId: It has two members of one path.
    """
    check_options(
        options, "an archive of class folders", ("image_column", "label_column", "id_column")
    )
    files = find_files(location, options.boundary)
    if len(files) > 1:
        raise DatasetError(
            f"{location!r} names {len(files)} archives, first {files[0].place.name!r}; "
            "expected one that holds all class folders"
        )
    members = _by_path(files[0])
    folders = _folders(members, files[0].place.name)
    top = _single_top(folders, options.split)
    found = find_class_folders(_tree(folders, top), location, options.split)
    found = _below(found, top)
    samples = _Members(files[0].place, [members.get(path) for path in found.paths], found.paths)
    listing = found.listing((files[0].size,))
    open_at = partial(_open_at, samples)
    return build_dataset(location, options, listing, open_at, found.describe)


def _by_path(file: StoredFile) -> dict[str, Member]:
    """Files by their path, and folders by theirs with a slash at the end."""
    members: dict[str, Member] = {}
    for member in read_archive(file):
        key = f"{member.path}/" if member.is_folder else member.path
        if key in members and not member.is_folder:
            raise DuplicateSampleId(
                f"{file.place.name!r} has two members {member.path!r}, at bytes "
                f"{members[key].offset:,} and {member.offset:,}; ids must tell samples apart"
            )
        members[key] = member
    return members


def _folders(members: dict[str, Member], archive_name: str) -> dict[str, list[Entry]]:
    """What is directly in each folder, also in those that have no member of their own."""
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
    """Adds a folder and those above it, each with an entry in the one above."""
    if path in folders:
        return
    above, _, name = path.rpartition("/")
    _add_folder(folders, above)
    folders[above].append((name, True, 0))
    folders[path] = []


def _single_top(folders: dict[str, list[Entry]], split: str | None) -> str:
    """The one folder at the top that holds all others, with a slash; "" where there is none."""
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


def _below(found: ClassFolders, top: str) -> ClassFolders:
    return replace(found, paths=[top + path for path in found.paths])


def _open_at(samples: _Members, positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        yield _opener(samples.place, samples.of[position], samples.paths[position])


def _opener(place: StoredPath, member: Member | None, path: str) -> ImageOpener:
    if member is None:
        return refusing("a directory, not an image file")
    if member.problem is not None:
        return refusing(member.problem)
    if not has_image_extension(path):
        return refusing(why_not_by_name(path))
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
        raise ImageError("its archive ends before it")
    signature, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    if signature != _LOCAL_SIGNATURE:
        raise ImageError("damaged: it is not where the archive's directory says")
    archive.seek(name_length + extra_length, 1)


def _unpack(data: bytes, member: Member) -> bytes:
    """The content, of which no byte more is unpacked than the directory says."""
    if member.is_deflated:
        try:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, member.size + 1)
        except zlib.error as error:
            raise ImageError(f"damaged inside its archive: {error}") from error
    if len(data) != member.size:
        raise ImageError("its size is not the one that the archive's directory says")
    if member.checksum is not None and zlib.crc32(data) != member.checksum:
        raise ImageError("damaged inside its archive: the checksum differs")
    return data
