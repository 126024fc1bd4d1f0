"""Values of PNG with sixteen bits and several channels, of which PIL keeps the upper eight bits.

PIL unpacks the bytes that it is told to: once the upper and once the lower ones of each value.
"""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import ImageFile

from difficulty_service.base.errors import ImageError

_LOWER = {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L", "LA;16B": "RGBA"}
"""How the lower bytes are unpacked, by how PIL unpacks the upper ones; of grey, both are."""

_GREY = "LA;16B"


def is_deep(header: ImageFile.ImageFile) -> bool:
    """Whether an image that is not decoded yet is such a PNG."""
    return header.format == "PNG" and bool(header.tile) and header.tile[0].args in _LOWER


def read_values(header: ImageFile.ImageFile) -> NDArray[np.uint16]:
    """The values of such a PNG, without alpha; grey is repeated. Shape (height, width, 3).

    Raises:
        ImageError: It is damaged.
    """
    upper = str(header.tile[0].args)
    low = _unpacked(header, _LOWER[upper])
    if upper == _GREY:
        grey = low[..., :1] * np.uint16(256) + low[..., 1:2]
        return np.repeat(grey, 3, axis=2)
    return (_unpacked(header, upper) * np.uint16(256) + low)[..., :3]


def _unpacked(header: ImageFile.ImageFile, how: str) -> NDArray[np.uint16]:
    image = type(header)(io.BytesIO(header.fp.getvalue()), "")  # type: ignore[union-attr]
    image.tile = [image.tile[0]._replace(args=how)]
    try:
        return np.asarray(image).astype(np.uint16)
    except (OSError, SyntaxError, ValueError) as error:
        raise ImageError(f"cannot be decoded: {error}") from error
