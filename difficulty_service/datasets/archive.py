"""Datasets in a tar or zip of class folders, which is read without extracting it."""

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, DuplicateSampleId, ImageError
from difficulty_service.datasets.class_folders import find_class_folders
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.folder_checks import FolderChoice
from difficulty_service.datasets.folder_tree import FolderTree, visible
from difficulty_service.datasets.image_openers import (
    extension_problem,
    has_image_extension,
    open_bytes,
    refusing,
)
from difficulty_service.datasets.listing import as_text, build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import Entry, StoredFile, StoredPath, open_file
from difficulty_service.datasets.tar_files import (
    MAX_MEMBERS,
    TAR_ERRORS,
    open_tar,
    read_headers,
    read_in_order,
    why_unreadable,
)

ZIP_EXTENSION = ".zip"
MAX_MEMBER_BYTES = 1 << 28
"""Maximum size of one image after unpacking."""

_ZIP_ERRORS = (zipfile.BadZipFile, struct.error, NotImplementedError, *TAR_ERRORS)
_MAX_DIRECTORY_BYTES = 1 << 28
_MAX_RATIO = 200  # a photo hardly shrinks; an image of one colour does
_MIN_BYTES_OF_RATIO = 1 << 20
_ENCRYPTED = 0x1
_UNIX = 3
_LOCAL_HEADER_BYTES = 30
_MAX_DEPTH = 32
_UNSAFE = re.compile(r"^/|^[A-Za-z]:|[\x00-\x1f\x7f\\]")
_USUAL = re.compile(r"\w[^/\\:\x00-\x1f\x7f]*(?:/[^/\\.\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*)*")
"""Safe names as nearly all are, which are found in a third of the time of the other checks."""
_CHECKED_HEADERS = 4096
_CHECKED_HEADERS_REMOTE = 256


class ArchiveMember(NamedTuple):
    """One file or folder of an archive.

    Attributes:
        offset: Offset of the first byte in a tar, of the local header in a zip.
        problem: Reason why the member cannot be read; None if it can.
        checksum: CRC-32 in a zip; None in a tar.
    """

    path: str
    is_folder: bool
    offset: int
    stored: int
    size: int
    problem: str | None
    checksum: int | None = None
    is_deflated: bool = False


def read_archive(file: StoredFile, *, compressed: bool = False) -> list[ArchiveMember]:
    """Reads the members of a tar or a zip, in order; of a compressed tar only if that is allowed.

    Raises:
        DatasetError: The archive is damaged, unsafe, or compressed as a whole.
    """
    name = file.place.name.lower()
    if is_compressed(file.place) and not compressed:
        raise DatasetError.of_location(
            f"{file.place.name!r} is compressed as a whole, so reading an image needs all data "
            "before it",
            "write an uncompressed .tar, or a .zip",
        )
    is_zip = name.endswith(ZIP_EXTENSION)
    try:
        return list(_zip_members(file) if is_zip else _tar_members(file.place))
    except _ZIP_ERRORS as error:
        raise DatasetError(
            f"the archive {file.place.name!r} is damaged, truncated or not an archive: {error}",
            "fetch or write it again",
        ) from error


def is_compressed(place: StoredPath) -> bool:
    """Whether an archive is a tar that is compressed as a whole."""
    return place.name.lower().endswith((".gz", ".tgz"))


def _tar_members(place: StoredPath) -> Iterator[ArchiveMember]:
    with open_tar(place) as archive:
        for header in read_headers(archive):
            path = _safe_path(header.name, place.name)
            problem = None if header.is_folder else why_unreadable(header, MAX_MEMBER_BYTES)
            # An unreadable member, such as a link, has no content, whatever its header says.
            size = 0 if problem or header.is_folder else header.size
            yield ArchiveMember(path, header.is_folder, header.offset, size, size, problem)


def _safe_path(name: str, archive_name: str) -> str:
    if _USUAL.fullmatch(name) and name.count("/") < _MAX_DEPTH:
        return name
    parts = name.split("/")
    if _UNSAFE.search(name) or ".." in parts:
        raise DatasetError(
            f"the member {as_text(name)[:200]!r} of {archive_name!r} has a name that leads outside "
            "or has unsafe characters",
            "write the archive again with relative names and `/` between their parts",
        )
    if "" in parts or "." in parts:
        parts = [part for part in parts if part not in ("", ".")]
        name = "/".join(parts)
    if len(parts) > _MAX_DEPTH:
        raise DatasetError(
            f"the member {as_text(name)[:200]!r} of {archive_name!r} is {len(parts)} folders deep",
            f"the maximum depth is {_MAX_DEPTH}",
        )
    return name


@dataclass(frozen=True)
class _BoundedDirectory:
    """A file that limits the size of the directory that zipfile reads."""

    file: BinaryIO

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"a directory of {size:,} bytes")
        data = self.file.read(size if size >= 0 else _MAX_DIRECTORY_BYTES)
        if data.count(b"PK\x01\x02") > MAX_MEMBERS:
            raise zipfile.BadZipFile(f"more than {MAX_MEMBERS:,} members")
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def _zip_members(file: StoredFile) -> Iterator[ArchiveMember]:
    name = file.place.name
    with (
        open_file(file.place) as archive,
        zipfile.ZipFile(cast(BinaryIO, _BoundedDirectory(archive))) as opened,
    ):
        entries = opened.infolist()
    _refuse_overlaps(entries, file)
    for number, entry in enumerate(entries, 1):
        if not entry.filename:
            raise DatasetError(f"member {number:,} of {name!r} has no name", "write it again")
        if entry.flag_bits & _ENCRYPTED:
            raise DatasetError(f"{name!r} is encrypted", "write it again without a password")
        path, is_folder = _safe_path(entry.filename, name), entry.is_dir()
        problem = None if is_folder else _zip_problem(entry)
        stored, size = entry.compress_size, entry.file_size
        is_deflated = entry.compress_type == zipfile.ZIP_DEFLATED
        offset, checksum = entry.header_offset, entry.CRC
        yield ArchiveMember(path, is_folder, offset, stored, size, problem, checksum, is_deflated)


def _refuse_overlaps(entries: list[zipfile.ZipInfo], file: StoredFile) -> None:
    """Refuses members that share bytes, as in a zip bomb that unpacks the same data many times."""
    starts = np.array([entry.header_offset for entry in entries], dtype=np.int64)
    lengths = np.array([entry.compress_size for entry in entries], dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + lengths)[order] + _LOCAL_HEADER_BYTES
    limits = np.append(starts[1:], file.size)
    if (lengths < 0).any() or (starts < 0).any() or (ends > limits).any():
        raise zipfile.BadZipFile("its members overlap or lie beyond its end")


def _zip_problem(entry: zipfile.ZipInfo) -> str | None:
    """The reason why a file in a zip cannot be read; None if it can."""
    kind = stat.S_IFMT(entry.external_attr >> 16) if entry.create_system == _UNIX else 0
    if kind not in (0, stat.S_IFREG):
        what = "a link" if kind == stat.S_IFLNK else "not a regular file"
        return f"{what} inside a zip, not an image"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"compressed by method {entry.compress_type}, but only stored and deflated are read"
    if max(entry.file_size, entry.compress_size) > MAX_MEMBER_BYTES:
        return f"{entry.file_size:,} bytes, more than the {MAX_MEMBER_BYTES:,} one image may have"
    if entry.file_size > max(_MIN_BYTES_OF_RATIO, _MAX_RATIO * entry.compress_size):
        return f"{entry.compress_size:,} bytes that unpack to {entry.file_size:,}: not a photograph"
    return None


def holds_plain_images(place: StoredPath) -> bool:
    """Whether the first members of a tar are images without label files beside them."""
    limit = _CHECKED_HEADERS if place.is_local else _CHECKED_HEADERS_REMOTE
    images, labelled = set(), set()
    try:
        with open_tar(place) as archive:
            for count, header in enumerate(read_headers(archive)):
                folder, slash, name = header.name.removeprefix("./").rpartition("/")
                key = folder + slash + name.partition(".")[0]
                if has_image_extension(name):
                    images.add(key)
                elif name.lower().endswith((".cls", ".json")):
                    labelled.add(key)
                if count >= limit or images & labelled:
                    break
    except TAR_ERRORS:
        return False
    return bool(images) and not images & labelled


MAX_FOLDERS = 1_000_000

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"


def open_archive(location: str, options: DatasetOptions) -> Dataset:
    """Opens one tar or zip whose folders, possibly inside a single one, are the classes.

    The samples of a compressed tar are in the order of the archive, which is read from its start
    for each shard; one that others send, who may have packed terabytes, is refused.
    """
    check_options(options, "an archive of class folders")
    files = find_files(location, options.boundary)
    if len(files) > 1:
        raise DatasetError.of_location(
            f"{location!r} matches {len(files)} archives, the first is {files[0].place.name!r}",
            "expected one archive that holds all class folders",
        )
    place = files[0].place
    members = _by_path(files[0], compressed=options.limits is None)
    folders = _folders(members, place.name)
    tree = FolderTree(lambda path: visible(folders.get(path, [])), str)
    classes = find_class_folders(tree, location, FolderChoice.of(options, in_archive=True))
    if is_compressed(place):
        offsets = [members[path].offset if path in members else 0 for path in classes.paths]
        classes = classes.in_order(np.argsort(offsets, kind="stable"))
    listed = classes.listing((files[0].size,))
    slow = _warn_of_shards(place, len(classes.paths), options.shard_size)
    listing = replace(
        listed,
        containers=[place],
        warnings=(*listed.warnings, *slow),
    )
    # An empty folder is a sample without a member.
    samples = [members.get(path) for path in classes.paths]
    open_at = partial(_open_at, place, samples, classes.paths)
    return build_dataset(location, options, listing, open_at, classes.describe)


def _warn_of_shards(place: StoredPath, num_samples: int, shard_size: int) -> tuple[str, ...]:
    if not is_compressed(place) or num_samples <= shard_size:
        return ()
    return (
        f"{place.name!r} is compressed as a whole and read from its start for every "
        f"{shard_size:,} images; a .zip or an uncompressed .tar is faster",
    )


def _by_path(file: StoredFile, *, compressed: bool) -> dict[str, ArchiveMember]:
    """Members by path; the paths of folders end with a slash."""
    members: dict[str, ArchiveMember] = {}
    for member in read_archive(file, compressed=compressed):
        key = f"{member.path}/" if member.is_folder else member.path
        if key in members and not member.is_folder:
            raise DuplicateSampleId(
                f"{file.place.name!r} has two members {member.path!r}, at bytes "
                f"{members[key].offset:,} and {member.offset:,}",
                "ids must be unique",
            )
        members[key] = member
    return members


def _folders(members: dict[str, ArchiveMember], archive_name: str) -> dict[str, list[Entry]]:
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


def _open_at(
    place: StoredPath,
    members: list[ArchiveMember | None],
    paths: list[str],
    positions: NDArray[np.int64],
) -> Iterator[ImageOpener]:
    if not is_compressed(place):
        for position in positions.tolist():
            member = members[position]
            problem = _problem(member, paths[position])
            yield partial(_open_member, place, member) if problem is None else refusing(problem)
        return
    chosen = [(members[position], paths[position]) for position in positions.tolist()]
    problems = [_problem(*each) for each in chosen]
    spans = [
        None if member is None or problem else (member.offset, member.size)
        for (member, _), problem in zip(chosen, problems, strict=True)
    ]
    for problem, data in zip(problems, read_in_order(place, spans), strict=True):
        yield partial(open_bytes, data) if problem is None else refusing(problem)


def _problem(member: ArchiveMember | None, path: str) -> str | None:
    """The reason why the sample at a path is no image; None where it may be one."""
    if member is None:
        return "a directory, not an image file"
    if member.problem is None and not has_image_extension(path):
        return extension_problem(path)
    return member.problem


def _open_member(place: StoredPath, member: ArchiveMember) -> BinaryIO:
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


def _unpack(data: bytes, member: ArchiveMember) -> bytes:
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
