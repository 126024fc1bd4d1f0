"""Results of jobs, in a folder or in any storage that pyarrow knows.

A file is never changed once it is there: every attempt of a job has a folder of its own.
"""

import hashlib
import os
import posixpath
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileType, LocalFileSystem, copy_files

from difficulty_service.atomic_file import replacing
from difficulty_service.datasets.storage import StoredPath, resolve

COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class Artifacts:
    """Files by key; a key is a relative path with `/` between its parts.

    Attributes:
        root: Where they are.
    """

    root: StoredPath

    def put(self, local: Path, key: str) -> None:
        """Copies a local file; it appears whole or not at all, and outlives a power cut.

        Raises:
            OSError: There is no space, or the storage cannot be reached.
        """
        place = self._place(key)
        if self.root.is_local:
            _put_local(local, Path(place))
            return
        copy_files(
            str(local.absolute()),
            place,
            source_filesystem=LocalFileSystem(),
            destination_filesystem=self.root.filesystem,
        )

    def size(self, key: str) -> int | None:
        """Bytes of a file, or None where there is none."""
        info = self._info(key)
        return None if info is None else int(info.size)

    def etag(self, key: str) -> str | None:
        """Changes whenever the file could have; as in the header, quotes included."""
        info = self._info(key)
        if info is None:
            return None
        identity = f"{key}\n{info.size}\n{info.mtime_ns}"
        return f'"{hashlib.sha256(identity.encode()).hexdigest()[:32]}"'

    def open(self, key: str) -> pa.NativeFile:
        """Opens a file for reading anywhere in it; the caller closes it.

        Raises:
            FileNotFoundError: It is not there.
        """
        return self.root.filesystem.open_input_file(self._place(key))

    def list_prefix(self, prefix: str) -> list[str]:
        """Keys of all files below a folder, sorted."""
        infos = self._below(prefix, recursive=True)
        return sorted(self._key(info) for info in infos if info.type == FileType.File)

    def list_folders(self, prefix: str) -> list[str]:
        """Keys of the folders directly in a folder, sorted."""
        infos = self._below(prefix, recursive=False)
        return sorted(self._key(info) for info in infos if info.type == FileType.Directory)

    def delete_prefix(self, prefix: str) -> None:
        """Deletes a folder and all that is below; nothing where there is none."""
        try:
            self.root.filesystem.delete_dir(self._place(prefix))
        except FileNotFoundError:
            return

    def _below(self, prefix: str, *, recursive: bool) -> list[FileInfo]:
        selector = FileSelector(self._place(prefix), allow_not_found=True, recursive=recursive)
        infos: list[FileInfo] = self.root.filesystem.get_file_info(selector)
        return infos

    def _info(self, key: str) -> FileInfo | None:
        info = self.root.filesystem.get_file_info(self._place(key))
        return info if info.type == FileType.File else None

    def _key(self, info: FileInfo) -> str:
        return posixpath.relpath(info.path, self.root.path)

    def _place(self, key: str) -> str:
        parts = key.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ValueError(f"{key!r} is no key of an artifact")
        return self.root.join(key).path


def open_artifacts(root: str) -> Artifacts:
    """The results below a folder or URI; a local folder is made.

    Raises:
        DatasetError: The URI is malformed or its storage cannot be reached.
        OSError: The folder cannot be made.
    """
    place = resolve(root)
    if place.is_local:
        Path(place.path).mkdir(parents=True, exist_ok=True)
    return Artifacts(place)


def _put_local(local: Path, path: Path) -> None:
    with replacing(path) as temporary, local.open("rb") as source, temporary.open("wb") as target:
        while block := source.read(COPY_BYTES):
            target.write(block)
    # The names themselves must be on the disk before the database says that they are there.
    for folder in (path.parent, *path.parents[1:3]):
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
