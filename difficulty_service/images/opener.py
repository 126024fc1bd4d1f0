"""What opens an encoded image, for whoever reads it."""

from collections.abc import Callable
from typing import BinaryIO

ImageOpener = Callable[[], BinaryIO]
"""Opens one encoded image as a seekable file; raises ImageError."""
