"""Decodes one image with torchcodec or PIL to a tensor: eight bits, three channels, upright."""

import functools
import importlib
import importlib.metadata
from collections.abc import Callable

import numpy as np
import torch
from PIL import ImageFile
from torch import Tensor

from difficulty_service.images.pil_decoding import decode_to_pil, upright_shape

PNG_BIT_DEPTH_OFFSET = 24
EIGHT_BITS = 8


def decode_to_tensor(data: bytes, header: ImageFile.ImageFile) -> Tensor:
    """Decodes with torchcodec if it is installed and the image is plain, otherwise with PIL.

    Args:
        data: The whole encoded image.
        header: The same image after `open_header`, not yet decoded.

    Returns:
        Uint8, upright, stored in memory as (height, width, 3). Shape (3, height, width).

    Raises:
        ImageError: The image is truncated, damaged or of a kind that cannot be converted to RGB.
    """
    decode = torchcodec_decoder()
    if decode is not None and is_plain(data, header):
        try:
            # Given bytes, it would replace the warning filters, which all threads share.
            decoded = decode(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        except (RuntimeError, ValueError):
            decoded = None  # PIL decides about damaged images and gives better reasons.
        if decoded is not None and decoded.shape == (3, *upright_shape(header)):
            return decoded
    return torch.from_numpy(np.array(decode_to_pil(header))).permute(2, 0, 1)


def is_plain(data: bytes, header: ImageFile.ImageFile) -> bool:
    """Whether torchcodec is known to give exactly the pixels that PIL gives.

    PNG images with a colour profile go to PIL because libpng warns about bad profiles on stderr.
    """
    if header.format in ("JPEG", "MPO"):  # MPO is a JPEG followed by further images.
        return header.mode in ("L", "RGB")
    if header.format not in ("PNG", "WEBP") or getattr(header, "is_animated", False):
        return False
    if header.format == "WEBP":
        return True
    return data[PNG_BIT_DEPTH_OFFSET] <= EIGHT_BITS and "icc_profile" not in header.info


@functools.cache
def torchcodec_decoder() -> Callable[[Tensor], Tensor] | None:
    """Torchcodec's image decoder, or None if it is missing or incompatible with this torch.

    The decoder takes the encoded bytes as a uint8 tensor.
    """
    try:
        decoders = importlib.import_module("torchcodec.decoders")
    except (ImportError, OSError, RuntimeError):
        return None
    decoder: Callable[[Tensor], Tensor] | None = getattr(decoders, "decode_image", None)
    return decoder


def decoder_name() -> str:
    """Name and version of the library that decodes plain images in mode `fast`."""
    package = "pillow" if torchcodec_decoder() is None else "torchcodec"
    return f"{package} {importlib.metadata.version(package)}"
