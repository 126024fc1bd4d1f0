"""Makes small pictures in processes of their own.

An image may be made to take all memory or to hang its decoder. It then takes those of a process
that is replaced, not those of the web server.
"""

from functools import partial

import structlog

from api.results.small_picture import picture_maker
from difficulty_service.base.apart import Apart, Limits, ProcessEnded, TookTooLong
from difficulty_service.base.errors import ImageError

LONGEST = 20.0  # seconds for one picture
ATTEMPTS = 2  # the process may have been killed before it saw the image
BYTES_PER_PIXEL = 24  # 32-bit values are scaled in double precision
OTHER_BYTES = 512 << 20
KEPT_BYTES = 128 << 20
"""Memory above which a process is replaced once its picture is made."""


class PictureProcesses:
    """A few processes, each started with its first picture; each makes one picture at a time."""

    def __init__(self, number: int, max_pixels: int, longest: float = LONGEST) -> None:
        limits = Limits(max_pixels * BYTES_PER_PIXEL + OTHER_BYTES, KEPT_BYTES)
        self._pictures = Apart(partial(picture_maker, max_pixels), processes=number, limits=limits)
        self._longest = longest

    def shrink(self, data: bytes, size: int) -> bytes:
        """A small JPEG of an image; waits for a process that is idle.

        The longer side gets at most `size` pixels; smaller images keep their size. An `ImageError`
        says that the image cannot be decoded, takes too long, or ends the process.
        """
        for _ in range(ATTEMPTS):
            try:
                return self._pictures.call_within(self._longest, data, size)
            except TookTooLong:
                raise ImageError(f"takes more than {self._longest:g} s to decode") from None
            except ProcessEnded as error:
                structlog.get_logger().error("picture-process-died", exc_info=error)
        raise ImageError("the process that decodes it ended each time")

    def close(self) -> None:
        """Ends all processes, once their pictures are finished."""
        self._pictures.close()
