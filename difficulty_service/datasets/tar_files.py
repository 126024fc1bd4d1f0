"""Reads the headers of a tar with limits, because the archive may be malicious.

A header may claim a size that exhausts the memory, or a negative size that leads back to the same
header for ever; both raise an error here.

The index of a WebDataset tar, read in one pass over its headers without extracting it.

The members of a sample share the path up to the first dot of the file name: `a/7.jpg`, `a/7.cls`.
"""

import gzip
import io
import json
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from difficulty_service.base.errors import DatasetError, DuplicateSampleId, Setting
from difficulty_service.datasets.image_openers import (
    IMAGE_EXTENSIONS,
    MAX_IMAGE_BYTES,
    has_image_extension,
)
from difficulty_service.datasets.labels import LABEL_NAMES, label_like
from difficulty_service.datasets.listing import as_text
from difficulty_service.datasets.plain_headers import (
    MAX_NAME_LENGTH,
    TarHeader,
    read_plain_headers,
)
from difficulty_service.datasets.sample import Skipped
from difficulty_service.datasets.storage import StoredFile, StoredPath, open_file

TAR_EXTENSIONS = (".tar", ".tar.gz", ".tgz")

TAR_ERRORS = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    OSError,
    ValueError,
    OverflowError,
    RecursionError,
)
"""Errors that reading a damaged, truncated or malicious archive raises."""

MAX_MEMBERS = 2_000_000
MAX_NAMES_LENGTH = 1 << 29
_MAX_HEADER_BYTES = 1 << 18  # per member, with long names and extended attributes
_MAX_GLOBAL_FIELDS = 1000


@dataclass
class _BoundedReader:
    """A file from which at most `left` bytes may be read until `left` is reset."""

    file: BinaryIO
    left: int = _MAX_HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise tarfile.ReadError(f"a header of more than {_MAX_HEADER_BYTES:,} bytes")
        self.left -= size
        return self.file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


@contextmanager
def open_tar(place: StoredPath) -> Iterator[BinaryIO]:
    """Opens an archive as a decompressed file; seeking backward may be expensive."""
    with ExitStack() as stack:
        file = stack.enter_context(open_file(place))
        if not place.name.lower().endswith(".tar"):
            file = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file)))
        yield file


def read_in_order(place: StoredPath, spans: Iterable[tuple[int, int] | None]) -> Iterator[bytes]:
    """The bytes of members at ascending offsets, each with its size; none for None.

    A compressed archive is read from its start for each call.

    Raises:
        DatasetError: The archive is damaged, or has changed.
    """
    try:
        with open_tar(place) as archive:
            for span in spans:
                if span is None:
                    yield b""
                    continue
                archive.seek(span[0])
                yield archive.read(span[1])
    except TAR_ERRORS as error:
        raise DatasetError(
            f"the tar {place.path!r} is damaged or has changed: {error}", "fetch it again"
        ) from error


def read_headers(archive: BinaryIO) -> Iterator[TarHeader]:
    """Yields all headers in order; the caller may seek in the archive.

    Raises:
        tarfile.TarError: The archive is damaged, truncated or too large. The other TAR_ERRORS are
            possible as well.
    """
    count, length = 0, 0
    for header in _every_header(archive):
        count, length = count + 1, length + len(header.name)
        if count > MAX_MEMBERS or length > MAX_NAMES_LENGTH:
            raise tarfile.ReadError(f"more than {MAX_MEMBERS:,} members, or too long names")
        yield header


def _every_header(archive: BinaryIO) -> Iterator[TarHeader]:
    start = 0
    # Headers are read ahead of those that are asked for, and elsewhere the way back is long.
    if isinstance(getattr(archive, "raw", None), io.FileIO):
        start = yield from read_plain_headers(archive.fileno())
    yield from _headers_by_tarfile(archive, start)


def _headers_by_tarfile(archive: BinaryIO, start: int) -> Iterator[TarHeader]:
    """The headers from one on that has no others before it that it depends on."""
    archive.seek(max(start - 1, 0))
    if start and not archive.read(1):
        raise tarfile.ReadError("unexpected end of data")
    reader = _BoundedReader(archive)
    with tarfile.open(fileobj=cast(BinaryIO, reader), mode="r:") as tar:
        last = start - 1
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # otherwise all headers would stay in memory
            _check(tar, member, last)
            last = tar.offset
            yield _header_of(member)
            reader.left = _MAX_HEADER_BYTES
        # tarfile treats an unreadable header as the end; the real end is a block of zeros.
        archive.seek(tar.offset)
        if archive.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError(f"no end-of-archive mark at byte {tar.offset:,}")


def _check(tar: tarfile.TarFile, member: tarfile.TarInfo, last: int) -> None:
    if tar.offset <= last or member.size < 0:
        raise tarfile.ReadError(f"the header at byte {member.offset:,} leads backwards")
    if len(member.name) > MAX_NAME_LENGTH:
        raise tarfile.ReadError(f"a name of {len(member.name):,} characters")
    if len(tar.pax_headers) > _MAX_GLOBAL_FIELDS:
        raise tarfile.ReadError(f"more than {_MAX_GLOBAL_FIELDS:,} global fields")


def _header_of(member: tarfile.TarInfo) -> TarHeader:
    problem = None
    if member.issym() or member.islnk():
        problem = f"a link to {as_text(member.linkname)!r} inside a tar, not an image"
    elif not member.isdir() and (not member.isreg() or member.issparse()):
        problem = "not a regular file in the tar"
    place, size = member.offset_data, member.size
    return TarHeader(member.name, place, size, member.isdir(), member.isreg(), problem)


def why_unreadable(header: TarHeader, max_bytes: int) -> str | None:
    """The reason why a member cannot be an image; None if it can."""
    if header.size > max_bytes and header.problem is None:
        return f"{header.size:,} bytes, more than the {max_bytes:,} one image may have"
    return header.problem


_MAX_TEXT_BYTES = 16 << 20
_MAX_TEXTS_BYTES = 1 << 30  # all labels of an archive are in memory together
_TEXTS = ("cls", "json")
_CLS = ".cls"


@dataclass(frozen=True)
class TarMember:
    """One member of a sample.

    Attributes:
        offset: Offset of the first byte in the decompressed archive.
        problem: Reason why the member cannot be read; None if it can.
        text: Content of a `.cls` or `.json` member; None for others.
    """

    offset: int
    size: int
    problem: str | None
    text: str | None


@dataclass(frozen=True)
class TarSample:
    """A sample of an archive; without an image, the member has no size but a problem."""

    key: str
    label: int | str
    label_name: str | None
    image: TarMember


@dataclass(frozen=True)
class TarIndex:
    """The content of an archive.

    Attributes:
        labels: Where the labels come from: `.cls` or a key of the `.json` members; and then the
            other keys that look like labels, where the key was guessed.
        further_images: Extensions of images that are not read because the sample has another one,
            with the number of their samples.
    """

    samples: list[TarSample]
    skipped: list[Skipped]
    labels: tuple[str, ...]
    further_images: Counter[str]


def read_tar_index(file: StoredFile, label_key: str | None, *, unlabelled: bool) -> TarIndex:
    """Reads the samples of an archive: those with a label, or with an image if it needs none."""
    groups = _read_groups(file)
    _refuse_archives(groups, file.place.name)
    samples: list[TarSample] = []
    skipped: list[Skipped] = []
    labels: tuple[str, ...] = ()
    for key, group in groups.items():
        if unlabelled:
            if _images(group):
                samples.append(TarSample(key, "", None, _image(group)))
            else:
                skipped.append((key, _NO_IMAGE))
            continue
        values, problem = _json_values(group)
        sources = _label_sources(group, values, label_key)
        labels = max(labels, sources, key=len)
        label = _label(group, values, sources)
        if isinstance(label, int | str):
            label = int(label) if isinstance(label, int) else label
            name = values.get("label_name")
            name = name if isinstance(name, str) else None
            samples.append(TarSample(key, label, name, _image(group)))
        else:
            skipped.append((key, problem or _label_problem(label, label_key)))
    _refuse_guess(labels, file.place.name)
    further = Counter(
        extension for sample in samples for extension in _images(groups[sample.key])[1:]
    )
    samples.sort(key=lambda sample: sample.image.offset)
    return TarIndex(samples, skipped, labels, further)


def _read_groups(file: StoredFile) -> dict[str, dict[str, TarMember]]:
    """The members of each key by their extensions."""
    groups: dict[str, dict[str, TarMember]] = {}
    length = 0
    try:
        with open_tar(file.place) as archive:
            for header in read_headers(archive):
                is_hidden = header.name.rpartition("/")[2].startswith((".", "__"))
                if header.is_folder or is_hidden:
                    continue
                length += len(_add(groups, header, archive, file.place.name))
                if length > _MAX_TEXTS_BYTES:
                    raise tarfile.ReadError(f"labels of more than {_MAX_TEXTS_BYTES:,} characters")
    except TAR_ERRORS as error:
        raise DatasetError(
            f"the tar {file.place.path!r} is damaged or truncated: {error}",
            "fetch or write it again, or exclude it from the glob",
        ) from error
    return groups


def _add(
    groups: dict[str, dict[str, TarMember]],
    header: TarHeader,
    archive: BinaryIO,
    tar_name: str,
) -> str:
    """Adds a member to the group of its key, `a/7` for `./a/7.seg.png`; gives its text if any."""
    folder, slash, name = as_text(header.name).removeprefix("./").rpartition("/")
    stem, _, extension = name.partition(".")
    key, extension = folder + slash + stem, extension.lower()
    group = groups.setdefault(key, {})
    if extension in group:
        raise DuplicateSampleId(
            f"the id {key!r} belongs to two samples: {tar_name!r} has two members "
            f"{key}.{extension}, at bytes {group[extension].offset:,} and {header.offset:,}"
        )
    problem = why_unreadable(header, MAX_IMAGE_BYTES)
    is_text = extension in _TEXTS and problem is None
    text = _read_text(header, archive) if is_text else None
    group[extension] = TarMember(header.offset, header.size, problem, text)
    return text or ""


def _read_text(header: TarHeader, archive: BinaryIO) -> str:
    if header.size > _MAX_TEXT_BYTES:
        raise DatasetError(
            f"the label {header.name!r} has {header.size:,} bytes", "expected a short text"
        )
    archive.seek(header.offset)
    return archive.read(header.size).decode("utf-8", "backslashreplace").strip()


def _json_values(group: dict[str, TarMember]) -> tuple[dict[str, object], str | None]:
    """The values of the `.json` member, and the reason why it has none."""
    text = group["json"].text if "json" in group else None
    if text is None:
        return {}, None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "its .json member is not JSON"
    if not isinstance(values, dict):
        return {}, "its .json member is not a JSON object"
    return {key: _whole(value) for key, value in values.items()}, None


def _whole(value: object) -> object:
    """A number without a fraction as an integer; any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _label_sources(
    group: dict[str, TarMember], values: dict[str, object], label_key: str | None
) -> tuple[str, ...]:
    """Where a label may be, by priority: the given key, or else `.cls` before keys of `.json`."""
    if label_key is not None:
        return (label_key,)
    keys = label_like(name for name, value in values.items() if isinstance(value, int | str))
    has_text = "cls" in group and group["cls"].text
    return (*([_CLS] if has_text else []), *keys)


def _label(
    group: dict[str, TarMember], values: dict[str, object], sources: tuple[str, ...]
) -> object:
    """The label of a sample at the first of its sources; None if there is none."""
    if not sources:
        return next((values[name] for name in LABEL_NAMES if name in values), None)
    if sources[0] == _CLS:
        return group["cls"].text or ""
    return values.get(sources[0])


def _label_problem(label: object, label_key: str | None) -> str:
    if isinstance(label, list):
        return "the label is a list, not one label"
    if label is not None:
        return "the label is neither an integer nor text"
    if label_key is not None:
        return f"no label: no {label_key!r} in its .json member"
    return f"no label: no .cls member, and no .json with one of {', '.join(LABEL_NAMES)}"


def _refuse_archives(groups: dict[str, dict[str, TarMember]], tar_name: str) -> None:
    """Refuses a tar of nothing but archives, as the training images of ImageNet are published."""
    members = [f"{key}.{extension}" for key, group in groups.items() for extension in group]
    if members and all(name.endswith((*TAR_EXTENSIONS, ".zip")) for name in members):
        raise DatasetError.of_location(
            f"{tar_name!r} holds {len(members):,} archives, such as {members[0]!r}, and no images",
            "unpack it, then each of them into a folder of its own name, and name the folder above",
        )


def _refuse_guess(labels: tuple[str, ...], tar_name: str) -> None:
    """Refuses to choose among several keys, none of which has a usual name."""
    if len(labels) > 1 and labels[0] not in (_CLS, *LABEL_NAMES):
        raise DatasetError(
            f"the .json members of {tar_name!r} have several keys that may be the label: "
            f"{', '.join(map(repr, labels))}",
            "name one of them as ",
            Setting("label_column"),
            parameter="label_column",
        )


_NO_IMAGE = "no member with an image extension"


def _images(group: dict[str, TarMember]) -> list[str]:
    """The extensions of images, that of the sample first: `jpg` rather than `seg.png`."""
    found = [extension for extension in group if has_image_extension(f".{extension}")]
    return sorted(found, key=lambda extension: extension not in IMAGE_EXTENSIONS)


def _image(group: dict[str, TarMember]) -> TarMember:
    """The member with the image."""
    for extension in _images(group):
        return group[extension]
    first = next(iter(group.values()))
    return TarMember(first.offset, 0, _NO_IMAGE, None)
