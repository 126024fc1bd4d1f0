"""What a tar of samples holds, found in one pass over its headers; nothing is extracted.

The members of one sample share the path up to the first dot of the file name: `a/7.jpg`, `a/7.cls`.
"""

import gzip
import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from difficulty_service.datasets.image_openers import (
    IMAGE_EXTENSIONS,
    MAX_IMAGE_BYTES,
    has_image_extension,
)
from difficulty_service.datasets.labels import LABEL_NAMES
from difficulty_service.datasets.listing import as_text
from difficulty_service.datasets.storage import StoredFile, StoredPath, open_file
from difficulty_service.errors import DatasetError, DuplicateSampleId

TAR_EXTENSIONS = (".tar", ".tar.gz", ".tgz")

TAR_ERRORS = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError)
"""What reading a damaged or truncated archive raises."""

_MAX_TEXT_BYTES = 16 << 20
_TEXTS = ("cls", "json")
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True)
class TarMember:
    """One member of a sample.

    Attributes:
        offset: Of its first byte in the archive, decompressed.
        size: In bytes.
        problem: Why it cannot be read; None if it can.
        text: What a `.cls` or `.json` member says; None for others.
    """

    offset: int
    size: int
    problem: str | None
    text: str | None


@dataclass(frozen=True)
class TarSample:
    """A sample of an archive.

    Attributes:
        key: What the names of its members begin with.
        label: Integer or text.
        label_name: Name of the class beside an integer label.
        offset: Of the image's first byte in the archive, decompressed.
        size: Of the image, in bytes; 0 without one.
        problem: Why there is no readable image; None if there is.
    """

    key: str
    label: int | str
    label_name: str | None
    offset: int
    size: int
    problem: str | None


@contextmanager
def open_tar(place: StoredPath) -> Iterator[BinaryIO]:
    """The archive as a file, decompressed; seeking forward is cheap, backward may not be."""
    with ExitStack() as stack:
        file = stack.enter_context(open_file(place))
        if not place.name.lower().endswith(".tar"):
            file = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file)))
        yield file


def read_tar_index(file: StoredFile, label_key: str | None) -> list[TarSample]:
    """The samples of an archive, in the order of their images.

    Args:
        file: The archive.
        label_key: Key of the label in `.json` members; None looks for the usual ones.

    Raises:
        DatasetError: The archive is damaged or truncated, or a sample has no label.
        DuplicateSampleId: A key has two members of one extension.
    """
    groups: dict[str, dict[str, TarMember]] = {}
    try:
        with open_tar(file.place) as archive:
            for header in _headers(archive):
                _add(groups, header, archive, file.place.name)
    except TAR_ERRORS as error:
        raise DatasetError(
            f"the tar {file.place.path!r} is damaged or truncated: {error}; "
            "fetch or write it again, or leave it out of the glob"
        ) from error
    samples = [_sample(key, group, file.place.name, label_key) for key, group in groups.items()]
    return sorted(samples, key=lambda sample: sample.offset)


def _headers(archive: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Everything but folders and hidden names; the consumer may move the archive's position."""
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # else a million headers stay in memory
            name = member.name.rpartition("/")[2]
            if not member.isdir() and not name.startswith((".", "__")):
                yield member
        # tarfile takes an unreadable header for the end; the real end is a block of zeros.
        archive.seek(tar.offset)
        if archive.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError(f"no end-of-archive mark at byte {tar.offset:,}")


def _add(
    groups: dict[str, dict[str, TarMember]],
    header: tarfile.TarInfo,
    archive: BinaryIO,
    tar_name: str,
) -> None:
    """Puts a member into the group of its key: `a/7` and `seg.png` of `./a/7.seg.png`."""
    folder, slash, name = as_text(header.name).removeprefix("./").rpartition("/")
    stem, _, extension = name.partition(".")
    key, extension = folder + slash + stem, extension.lower()
    group = groups.setdefault(key, {})
    if extension in group:
        raise DuplicateSampleId(
            f"the id {key!r} belongs to two samples: {tar_name!r} has two members "
            f"{key}.{extension}, at bytes {group[extension].offset:,} and {header.offset_data:,}"
        )
    problem = _problem(header)
    is_text = extension in _TEXTS and problem is None
    text = _read_text(header, archive) if is_text else None
    group[extension] = TarMember(header.offset_data, header.size, problem, text)


def _problem(header: tarfile.TarInfo) -> str | None:
    if header.issym() or header.islnk():
        return f"a link to {as_text(header.linkname)!r} inside a tar, not an image"
    if not header.isreg() or header.issparse():
        return "not a regular file in the tar"
    if header.size > MAX_IMAGE_BYTES:
        return f"{header.size:,} bytes, more than the {MAX_IMAGE_BYTES:,} one image may have"
    return None


def _read_text(header: tarfile.TarInfo, archive: BinaryIO) -> str:
    if header.size > _MAX_TEXT_BYTES:
        raise DatasetError(f"the label {header.name!r} has {header.size:,} bytes; expected a few")
    archive.seek(header.offset_data)
    return archive.read(header.size).decode("utf-8", "backslashreplace").strip()


def _sample(
    key: str, group: dict[str, TarMember], tar_name: str, label_key: str | None
) -> TarSample:
    values = _json_values(key, group, tar_name)
    label = _label(group, values, label_key)
    if not isinstance(label, int | str):
        raise DatasetError(
            f"the sample {key!r} in {tar_name!r} has "
            f"{'no label' if label is None else f'the label {label!r}'}; expected an integer or "
            f"text in {key}.cls, or in {key}.json as "
            f"{repr(label_key) if label_key else 'one of ' + ', '.join(LABEL_NAMES)}"
        )
    name = values.get("label_name")
    image = _image(group)
    return TarSample(
        key=key,
        label=int(label) if isinstance(label, int) else label,
        label_name=name if isinstance(name, str) else None,
        offset=image.offset,
        size=image.size,
        problem=image.problem,
    )


def _json_values(key: str, group: dict[str, TarMember], tar_name: str) -> dict[str, object]:
    text = group["json"].text if "json" in group else None
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except ValueError as error:
        raise DatasetError(f"{key}.json in {tar_name!r} is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise DatasetError(f"{key}.json in {tar_name!r} holds {text[:40]!r}; expected an object")
    return values


def _label(group: dict[str, TarMember], values: dict[str, object], label_key: str | None) -> object:
    """What the sample is labelled with; `.cls` comes first unless a key is asked for."""
    if label_key is not None:
        return values.get(label_key)
    text = group["cls"].text if "cls" in group else None
    if text:
        return int(text) if _INTEGER.fullmatch(text) else text
    return next((values[name] for name in LABEL_NAMES if name in values), None)


def _image(group: dict[str, TarMember]) -> TarMember:
    """The member with the image: of `7.jpg` and `7.seg.png` the first."""
    for known in (IMAGE_EXTENSIONS.__contains__, lambda name: has_image_extension(f".{name}")):
        for extension, member in group.items():
            if known(extension):
                return member
    first = next(iter(group.values()))
    return TarMember(first.offset, 0, "no member with an image extension", None)
