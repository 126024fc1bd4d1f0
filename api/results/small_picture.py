"""Makes small pictures; imports neither torch nor the service, so that its process is small."""

import io
from collections.abc import Callable
from functools import partial

from PIL import Image

from difficulty_service.base.errors import ImageError
from difficulty_service.images.header import decode_to_pil, open_header

QUALITY = 85


def picture_maker(max_pixels: int) -> Callable[[bytes, int], bytes]:
    """`small_picture` of images of at most `max_pixels`."""
    return partial(small_picture, max_pixels=max_pixels)


def small_picture(data: bytes, size: int, max_pixels: int) -> bytes:
    """A JPEG of an image, at most `size` pixels long and wide.

    Raises an `ImageError` where it cannot be decoded, has more pixels than `max_pixels`, or takes
    more memory than this process may have.
    """
    try:
        header = open_header(data, max_pixels)
        header.draft("RGB", (size, size))  # decodes a JPEG at a fraction of its size
        picture = decode_to_pil(header)
        picture.thumbnail((size, size), Image.Resampling.BICUBIC)
        target = io.BytesIO()
        picture.save(target, "JPEG", quality=QUALITY)
        return target.getvalue()
    except (ImageError, MemoryError) as error:
        if MemoryError in (type(error), type(error.__cause__)):
            raise ImageError("takes more memory to decode than a thumbnail may") from None
        raise
