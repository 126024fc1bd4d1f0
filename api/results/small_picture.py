"""The process that makes small pictures. It imports neither torch nor the service: 50 MB in all."""

import io
import os
import resource
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from PIL import Image

from api.parent_process import call_after_parent
from difficulty_service.errors import ImageError
from difficulty_service.images.header import open_header
from difficulty_service.images.pil_decoding import decode_to_pil

QUALITY = 85
BYTES_PER_PIXEL = 24  # 32-bit values are scaled in double precision
OTHER_BYTES = 512 << 20
KEPT_BYTES = 128 << 20
"""Memory above which a process is replaced once its picture is made."""


def serve_pictures(connection: Connection, max_pixels: int) -> None:
    """Answers each size and image with a JPEG, or the reason why there is none, until the end.

    Args:
        connection: Gives a size and the encoded image; gets the answer, and whether this process
            continues.
        max_pixels: Maximum number of pixels of an image.
    """
    # Signals to the process group go to the server too, which ends this process last.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    call_after_parent(lambda: os._exit(1))
    limit_memory(max_pixels * BYTES_PER_PIXEL + OTHER_BYTES)
    keep = True
    while keep:
        try:
            size = connection.recv()
            data = connection.recv_bytes()
        except EOFError:
            return
        answer = picture_or_reason(data, size, max_pixels)
        del data
        keep = memory_in_use() <= KEPT_BYTES
        connection.send((answer, keep))


def picture_or_reason(data: bytes, size: int, max_pixels: int) -> bytes | str:
    """The small JPEG of an image, or the reason why it cannot be decoded."""
    try:
        return small_picture(data, size, max_pixels)
    except ImageError as error:
        if isinstance(error.__cause__, MemoryError):
            return TOO_MUCH_MEMORY
        return error.problem
    except MemoryError:
        return TOO_MUCH_MEMORY


TOO_MUCH_MEMORY = "takes more memory to decode than a thumbnail may"


def small_picture(data: bytes, size: int, max_pixels: int) -> bytes:
    """A JPEG of an image, at most `size` pixels long and wide.

    Raises:
        ImageError: The image cannot be decoded, or is larger than `max_pixels`.
    """
    header = open_header(data, max_pixels)
    header.draft("RGB", (size, size))  # decodes a JPEG at a fraction of its size
    picture = decode_to_pil(header)
    picture.thumbnail((size, size), Image.Resampling.BICUBIC)
    target = io.BytesIO()
    picture.save(target, "JPEG", quality=QUALITY)
    return target.getvalue()


def limit_memory(limit: int) -> None:
    """Makes allocations beyond a number of bytes fail; Linux only, as no other system does."""
    if Path("/proc/self/statm").exists():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def memory_in_use() -> int:
    """Bytes of this process in memory; at their peak where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return pages * resource.getpagesize()
