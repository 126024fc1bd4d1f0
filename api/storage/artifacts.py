"""Results of jobs, in a folder or in any storage that pyarrow supports.

A file never changes once it is written: every attempt of a job has a folder of its own.
"""

import os
import posixpath
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType, LocalFileSystem, copy_files

from difficulty_service.base.files import replacing, temporary_path
from difficulty_service.datasets.storage import StoredPath, resolve

COPY_BYTES = 4 << 20
MOST_CHECKED = 10_000  # number of files that are remembered as checked


@dataclass(frozen=True)
class Artifacts:
    """Files by key; a key is a relative path with `/` between its parts."""

    root: StoredPath
    _checked: set[tuple[object, ...]] = field(default_factory=set, compare=False)

    def put(self, local: Path, key: str) -> None:
        """Copies a local file; it appears whole or not at all, and survives a power cut."""
        path = self._path(key)
        if self.root.is_local:
            save(local.open("rb"), Path(path))
            # The directory entries must be on the disk before the database says that files exist.
            for folder in Path(path).parents[:3]:
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            return
        copy_files(
            str(local.absolute()),
            path,
            source_filesystem=LocalFileSystem(),
            destination_filesystem=self.root.filesystem,
        )

    def size(self, key: str) -> int | None:
        """Number of bytes of a file, or None where there is none."""
        info = self.root.filesystem.get_file_info(self._path(key))
        return int(info.size) if info.type == FileType.File else None

    def local_path(self, key: str) -> Path | None:
        """Where a file is, or would be, in a folder of this machine; None in other storages."""
        return Path(self._path(key)) if self.root.is_local else None

    def local_copy(self, key: str, copy: Path) -> Path:
        """A file on this machine; of another storage, a copy, which is made unless it is there.

        Raises:
            FileNotFoundError: It is not in that storage.
        """
        path = self.local_path(key)
        if path is not None:
            return path
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            save(self.open(key), copy)
        return copy

    def open(self, key: str) -> pa.NativeFile:
        """Opens a file for reading anywhere in it; the caller closes it.

        Raises:
            FileNotFoundError: It is not there.
        """
        return self.root.filesystem.open_input_file(self._path(key))

    def read_text(self, key: str, limit: int) -> str | None:
        """The first `limit` bytes of a file of text; None where there is none."""
        try:
            with self.open(key) as file:
                return bytes(file.read(limit)).decode(errors="replace")
        except FileNotFoundError:
            return None

    def write_new_text(self, key: str, content: str) -> str:
        """Writes a small file of text unless there is one; gives the text that is there.

        In a folder only one of several processes writes it, in other storages the last one.
        """
        path = self._path(key)
        if not self.root.is_local:
            with self.root.filesystem.open_output_stream(path) as file:
                file.write(content.encode())
        else:
            whole = temporary_path(Path(path))
            try:
                whole.write_text(content)
                with suppress(FileExistsError):
                    os.link(whole, path)
            finally:
                whole.unlink(missing_ok=True)
        return self.read_text(key, len(content.encode()) + 1) or content

    def open_checked(self, key: str, check: Callable[[pa.NativeFile], None]) -> pa.NativeFile:
        """Opens a file as `open` does, after a check of its content.

        The check raises an error where the content is damaged. It is not called again for a file
        that passed and has had the same size and time since.
        """
        info = self.root.filesystem.get_file_info(self._path(key))
        identity = (key, info.size, info.mtime_ns)
        file = self.open(key)
        if identity in self._checked:
            return file
        try:
            check(file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        if len(self._checked) >= MOST_CHECKED:
            self._checked.clear()
        self._checked.add(identity)
        return file

    def list_folders(self, prefix: str) -> list[str]:
        """Keys of the folders directly in a folder, sorted."""
        selector = FileSelector(self._path(prefix), allow_not_found=True)
        infos = self.root.filesystem.get_file_info(selector)
        folders = [info.path for info in infos if info.type == FileType.Directory]
        return sorted(posixpath.relpath(folder, self.root.path) for folder in folders)

    def total_bytes(self, prefix: str) -> int:
        """Number of bytes of all files in a folder and below; 0 where there is none."""
        selector = FileSelector(self._path(prefix), allow_not_found=True, recursive=True)
        infos = self.root.filesystem.get_file_info(selector)
        return sum(info.size for info in infos if info.type == FileType.File)

    def delete(self, key: str) -> None:
        """Deletes a file, if it exists."""
        with suppress(FileNotFoundError):
            self.root.filesystem.delete_file(self._path(key))

    def delete_prefix(self, prefix: str) -> None:
        """Deletes a folder and everything below it, if it exists."""
        with suppress(FileNotFoundError):
            self.root.filesystem.delete_dir(self._path(prefix))

    def _path(self, key: str) -> str:
        parts = key.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ValueError(f"{key!r} is not the key of an artifact")
        return self.root.join(key).path


def open_artifacts(root: str) -> Artifacts:
    """Opens the artifacts below a folder or URI; a local folder is created."""
    stored = resolve(root)
    if stored.is_local:
        Path(stored.path).mkdir(parents=True, exist_ok=True)
    return Artifacts(stored)


def save(source: BinaryIO | pa.NativeFile, path: Path) -> None:
    """Copies an open file, which is closed, to a local one, which appears whole or not at all."""
    with source, replacing(path) as temporary, temporary.open("wb") as target:
        shutil.copyfileobj(source, target, COPY_BYTES)
