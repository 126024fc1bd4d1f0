"""The bytes of one encoded image and what its header says, before a pixel is decoded."""

import functools
import io
import os
import warnings
from collections.abc import Callable
from typing import BinaryIO

from PIL import Image, ImageFile

from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.errors import ImageError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
DEFAULT_MAX_PIXELS = 50_000_000

BYTES_PER_PIXEL = 8
METADATA_BYTES = 16 << 20
SIGNATURE_BYTES = 16

Plugin = Callable[[BinaryIO, str], ImageFile.ImageFile]


def read_encoded(opener: ImageOpener, max_pixels: int = DEFAULT_MAX_PIXELS) -> bytes:
    """Reads one file whole, after a look at its size and its first bytes.

    Args:
        opener: Opens the encoded image.
        max_pixels: No image of so many pixels has a file beyond 8 bytes a pixel and 16 MiB.

    Raises:
        ImageError: The file is empty, too large, of no accepted format, or cannot be read.
    """
    limit = max_pixels * BYTES_PER_PIXEL + METADATA_BYTES
    try:
        with opener() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size == 0:
                raise ImageError("the file is empty")
            if size > limit:
                raise ImageError(f"the file has {size} bytes, more than the {limit} allowed")
            # A film or an archive among the photographs is refused by its first bytes, unread.
            head = file.read(min(size, SIGNATURE_BYTES))
            find_plugin(head)
            return head + file.read(size - len(head))
    except OSError as error:
        raise ImageError(f"the file cannot be read: {one_line(error)}") from error


def open_header(data: bytes, max_pixels: int = DEFAULT_MAX_PIXELS) -> ImageFile.ImageFile:
    """Parses the header only: format, mode, size and metadata; decoding waits for `load`.

    Raises:
        ImageError: No accepted format, a damaged header, or more than `max_pixels`.
    """
    silence_pil_warnings()
    name, plugin = find_plugin(data[:SIGNATURE_BYTES])
    try:
        # Not Image.open: it raises or warns by its own global limit before the size can be asked.
        image = plugin(io.BytesIO(data), "")
    except Exception as error:
        raise ImageError(f"not a readable {name} image: {one_line(error)}") from error
    width, height = image.size
    if width * height > max_pixels:
        raise ImageError(
            f"{width} x {height} pixels are more than the {max_pixels} allowed; "
            "raise the limit with --max-pixels if the image is genuine"
        )
    if width < 1 or height < 1:
        raise ImageError(f"{width} x {height} pixels: the image is empty")
    return image


def find_plugin(head: bytes) -> tuple[str, Plugin]:
    """The name and opener of the accepted format that these first bytes belong to.

    Raises:
        ImageError: They belong to none.
    """
    for name, (plugin, accepts) in plugins().items():
        if accepts(head) is True:
            return name, plugin
    known = ", ".join(FORMATS)
    raise ImageError(f"not an image of a known format ({known}): it begins with {head[:8]!r}")


@functools.cache
def plugins() -> dict[str, tuple[Plugin, Callable[[bytes], bool | str]]]:
    """PIL's opener and its signature test of each accepted format, and of no other."""
    Image.init()
    return {name: Image.OPEN[name] for name in FORMATS if name in Image.OPEN}  # type: ignore[misc]


def silence_pil_warnings() -> None:
    """Keeps PIL's remarks about odd metadata off the terminal, and from becoming errors.

    `warnings.catch_warnings` swaps a list that all threads share, so two threads that leave it in
    the wrong order lose filters or keep them for ever. One filter for PIL's own modules, added
    when an image is first read and never taken away, has no such order to get wrong; it is added
    again where somebody else's `catch_warnings` dropped it.
    """
    pattern = r"PIL\."
    silenced = any(
        action == "ignore" and getattr(module, "pattern", None) == pattern
        for action, _, _, module, _ in tuple(warnings.filters)
    )
    if not silenced:
        warnings.filterwarnings("ignore", module=pattern)


def one_line(error: BaseException) -> str:
    """An error's text without line breaks, or its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
