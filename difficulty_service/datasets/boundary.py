"""The boundary of a dataset that is read on behalf of another user: nothing outside is opened.

By default there is no boundary and a dataset may refer to any file, because the user who names it
can read the same files. With a boundary, a link, an absolute path, a URI or a `..` that leads
outside is refused when it is opened, with OUTSIDE as the reason.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

OUTSIDE = "it is outside the dataset's root"

Fetch = Callable[[str], BinaryIO]
"""Function that opens the image at an https address; raises ImageError."""


@dataclass(frozen=True)
class Boundary:
    """A folder or file outside which nothing may be read; made by `storage.boundary_at`.

    Attributes:
        root: Absolute path of the root in the form of its file system; a local one has no links.
        uri: URI of a remote root without its query; None for a local root.
        fetch: Function that opens https addresses in tables; None to refuse them.
    """

    root: str
    uri: str | None = None
    fetch: Fetch | None = None

    @property
    def is_local(self) -> bool:
        """Whether the root is in the local file system."""
        return self.uri is None

    def require(self, path: str, *, is_local: bool) -> str:
        """Checks that a path is inside.

        Args:
            path: Absolute path in the form of its file system.
            is_local: Whether the path is in the local file system.

        Returns:
            The path, with all links resolved if it is local.

        Raises:
            PermissionError: The path is outside.
        """
        if is_local != self.is_local:
            raise PermissionError(OUTSIDE)
        if is_local:
            path = os.path.realpath(path)
        elif {"..", "."} & set(unquote(path).replace("\\", "/").split("/")):
            # Storage that resolves these parts, encoded or not, would leave the folder.
            raise PermissionError(OUTSIDE)
        if path != self.root and not path.startswith(self.root.rstrip("/") + "/"):
            raise PermissionError(OUTSIDE)
        return path

    def open_file(self, path: str) -> BinaryIO:
        """Opens a regular local file inside; safe against links that change at the same time.

        Raises:
            PermissionError: The file is outside.
            OSError: The file is missing, unreadable or not a regular file.
        """
        descriptor = self._open(path, os.O_NONBLOCK)  # opening a pipe would block
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("not a regular file")
        return os.fdopen(descriptor, "rb")

    def open_folder(self, path: str) -> int:
        """Opens a descriptor of a local folder inside; the caller closes it.

        Raises:
            PermissionError: The folder is outside.
            OSError: The folder is missing, unreadable or not a folder.
        """
        return self._open(path, os.O_DIRECTORY)

    def _open(self, path: str, flags: int) -> int:
        """Opens the path folder by folder from the root and follows no link on the way."""
        real = self.require(path, is_local=True)
        if real == self.root:  # the root may be a single file
            return os.open(real, os.O_RDONLY | os.O_NOFOLLOW | flags)
        *folders, name = Path(os.path.relpath(real, self.root)).parts
        current = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                deeper = os.open(
                    folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=current
                )
                os.close(current)
                current = deeper
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=current)
        finally:
            os.close(current)
