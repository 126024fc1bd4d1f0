"""The boundary of a dataset that is read for somebody else: nothing outside of it is opened.

Without a boundary, the default, a dataset may point anywhere: whoever names it may read the same
files anyway. With one, a link, an absolute path, a URI or a `..` that leads out is refused when
it is opened, with OUTSIDE as the reason.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

OUTSIDE = "it lies outside of the dataset's root"

Fetch = Callable[[str], BinaryIO]
"""Opens the image at an https address; raises ImageError."""


@dataclass(frozen=True)
class Boundary:
    """A folder, or a single file, that a dataset may not leave; made by `storage.boundary_at`.

    Attributes:
        root: Its absolute path, in the file system's own form; if local, without links.
        uri: Its URI without a query, where it is not local.
        fetch: Opens the https addresses that tables name; None refuses them.
    """

    root: str
    uri: str | None = None
    fetch: Fetch | None = None

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this computer."""
        return self.uri is None

    def require(self, path: str, *, is_local: bool) -> str:
        """The path itself, without links if it is local.

        Args:
            path: Absolute, in the file system's own form.
            is_local: Whether it is one of this computer.

        Raises:
            PermissionError: It is outside.
        """
        if is_local != self.is_local:
            raise PermissionError(OUTSIDE)
        if is_local:
            path = os.path.realpath(path)
        elif {"..", "."} & set(unquote(path).replace("\\", "/").split("/")):
            # Storage that cares for such parts, encoded or not, would leave the folder by them.
            raise PermissionError(OUTSIDE)
        if path != self.root and not path.startswith(self.root.rstrip("/") + "/"):
            raise PermissionError(OUTSIDE)
        return path

    def open_file(self, path: str) -> BinaryIO:
        """Opens a regular local file inside; exact even while others change folders and links.

        Raises:
            PermissionError: It is outside.
            OSError: It is missing, unreadable or not a regular file.
        """
        descriptor = self._open(path, os.O_NONBLOCK)  # opening a pipe would wait for its writer
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("not a regular file")
        return os.fdopen(descriptor, "rb")

    def open_folder(self, path: str) -> int:
        """A descriptor of a local folder inside; the caller closes it.

        Raises:
            PermissionError: It is outside.
            OSError: It is missing, unreadable or no folder.
        """
        return self._open(path, os.O_DIRECTORY)

    def _open(self, path: str, flags: int) -> int:
        """Opens part by part from the root, following no link: there is none in a real path."""
        real = self.require(path, is_local=True)
        if real == self.root:  # which may be a single file
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
