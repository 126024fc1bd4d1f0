"""Decodes JPEGs on an NVIDIA GPU, by nvJPEG.

torchcodec brings it, before torchcodec .16 torchvision. A GPU upsamples colours otherwise than
libjpeg and rounds otherwise, by a few levels of 255, so that such pixels are a mode of their own.
"""

import functools
import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from PIL import ExifTags, Image, ImageFile
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import BackboneError, Setting
from difficulty_service.images.appearance import sampled_places
from difficulty_service.images.header import SWAPPED_SIDES, open_header, orientation, upright_shape

DecodeJpegs = Callable[[Sequence[Tensor], torch.device], list[Tensor]]
"""Decodes encoded JPEGs, uint8 of shape (bytes,) on the CPU, to (3, height, width) on a device."""

MOST_PIXELS = 1 << 27
"""Pixels that are decoded at once: 400 MB, and a batch of 256 images of half a megapixel."""

MOST_BYTES = 1 << 19
"""Largest file that a GPU decodes: processes share the memory of whole batches of them."""

END = b"\xff\xd9"
"""The last bytes of a JPEG."""

RGB_COMPONENTS = tuple(b"RGB")
"""Ids by which a JPEG says that its components are colours as they are, which nvJPEG overlooks."""


@dataclass(frozen=True)
class JpegPlace:
    """Where a JPEG is among the bytes of several.

    Attributes:
        image: Number of the image in its batch.
        orientation: EXIF orientation, 1 to 8.
        height: Pixels when upright.
        width: Pixels when upright.
    """

    image: int
    start: int
    end: int
    orientation: int
    height: int
    width: int

    @property
    def num_pixels(self) -> int:
        """Pixels of the decoded image."""
        return self.height * self.width


@dataclass(frozen=True)
class EncodedJpegs:
    """JPEGs of a batch that the GPU decodes, in one tensor, as each costs a file between processes.

    Attributes:
        content: Uint8, on the CPU. Shape (bytes,).
    """

    content: Tensor
    places: tuple[JpegPlace, ...]

    def encoded(self, place: JpegPlace) -> Tensor:
        """One of them. Shape (bytes,)."""
        return self.content[place.start : place.end]


class JpegCollector:
    """Collects the JPEGs of a batch that a GPU decodes."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._places: list[JpegPlace] = []

    def add(self, data: bytes, max_pixels: int, image: int) -> bool:
        """Whether a GPU decodes an image of the batch as CPUs do; it is then kept.

        Not one that is cut short, which nvJPEG fills without a word, nor one of four colours or of
        RGB without a conversion, which it shows in wrong colours, nor one above `MOST_BYTES`.

        Raises:
            ImageError: The image is empty, not an image or too large.
        """
        header = open_header(data, max_pixels)
        if not _decodes_alike(data, header):
            return False
        start = len(self._content)
        self._content += data
        end, (height, width) = len(self._content), upright_shape(header)
        self._places.append(JpegPlace(image, start, end, orientation(header), height, width))
        return True

    def collected(self) -> EncodedJpegs | None:
        """All that were added; None for none."""
        if not self._places:
            return None
        return EncodedJpegs(torch.frombuffer(self._content, dtype=torch.uint8), tuple(self._places))


def _decodes_alike(data: bytes, header: ImageFile.ImageFile) -> bool:
    components = tuple(layer[0] for layer in getattr(header, "layer", ()))
    return (
        header.format == "JPEG"
        and len(data) <= MOST_BYTES
        and header.mode in ("L", "RGB")
        and header.info.get("adobe_transform", 1) == 1
        and components != RGB_COMPONENTS
        and data.rstrip(b"\0").endswith(END)
    )


class JpegDecoder:
    """Decodes JPEGs on a GPU, beside what is queued there.

    nvJPEG makes the program wait for the stream it works on, so that this is one of its own.

    Args:
        device: The GPU.
        decode: The function of a library.
        turns: Whether that applies the EXIF orientation.
    """

    def __init__(self, device: torch.device, decode: DecodeJpegs, *, turns: bool) -> None:
        self.device = device
        self._decode_jpegs = decode
        self._turns = turns
        self._stream = torch.cuda.Stream(device)
        self._places = functools.lru_cache(maxsize=64)(self._send_places)

    @contextmanager
    def beside(self) -> Iterator[Callable[[Tensor], Tensor]]:
        """Within it work goes on this decoder's stream.

        Yields:
            What hands a result on to the stream that is current outside. It gives what it is given.
        """
        outside = torch.cuda.current_stream(self.device)

        def hand_on(result: Tensor) -> Tensor:
            result.record_stream(outside)  # whose memory is taken for others only after its use
            return result

        with torch.cuda.stream(self._stream):
            yield hand_on
        outside.wait_stream(self._stream)

    def decode(self, jpegs: EncodedJpegs) -> Iterator[tuple[JpegPlace, Tensor | None]]:
        """Decodes JPEGs, some at once, upright; to be called within `beside`.

        Yields:
            Each with its pixels, uint8 on the device, of shape (3, height, width); None for one
            that nvJPEG does not decode, or for which the device has no memory.
        """
        for some in _in_parts(jpegs.places):
            yield from zip(some, self._decode(jpegs, some), strict=True)

    def sample(self, pixels: Tensor) -> Tensor:
        """The pixels that `appearance.measure` needs, there; see `SampledPixels.levels`."""
        _, height, width = pixels.shape
        return pixels.reshape(-1)[self._places(height, width)]

    def _send_places(self, height: int, width: int) -> Tensor:
        """Places of the sampled levels in an image that is stored channel by channel."""
        interleaved = torch.from_numpy(sampled_places(height, width))
        pixel, channel = interleaved // 3, interleaved % 3
        return send(channel * (height * width) + pixel, self.device)

    def _decode(self, jpegs: EncodedJpegs, some: Sequence[JpegPlace]) -> list[Tensor | None]:
        """Decodes some at once; halves of them where that fails, down to the one that does."""
        try:
            decoded = self._decode_jpegs([jpegs.encoded(place) for place in some], self.device)
        except RuntimeError:  # also for lack of memory
            if len(some) == 1:
                return [None]
            half = len(some) // 2
            return [*self._decode(jpegs, some[:half]), *self._decode(jpegs, some[half:])]
        return [self._upright(pixels, place) for pixels, place in zip(decoded, some, strict=True)]

    def _upright(self, pixels: Tensor, place: JpegPlace) -> Tensor | None:
        """The image turned as its EXIF orientation says; None if it then has another shape."""
        if not self._turns:
            if place.orientation in SWAPPED_SIDES:
                pixels = pixels.transpose(1, 2)
            if mirrored := MIRRORED.get(place.orientation):
                pixels = pixels.flip(mirrored)
        return pixels if pixels.shape == (3, place.height, place.width) else None


def _in_parts(places: Sequence[JpegPlace]) -> Iterator[list[JpegPlace]]:
    """As many images at once as have `MOST_PIXELS` together, one at least."""
    some: list[JpegPlace] = []
    pixels = 0
    for place in places:
        if some and pixels + place.num_pixels > MOST_PIXELS:
            yield some
            some, pixels = [], 0
        some.append(place)
        pixels += place.num_pixels
    if some:
        yield some


ROWS, COLUMNS = 1, 2
MIRRORED = {
    2: (COLUMNS,),
    3: (ROWS, COLUMNS),
    4: (ROWS,),
    6: (COLUMNS,),
    7: (ROWS, COLUMNS),
    8: (ROWS,),
}
"""Axes of a tensor that an EXIF orientation turns over, after rows and columns are exchanged."""


@functools.cache
def jpeg_decoder(device: torch.device) -> JpegDecoder:
    """What decodes JPEGs on a GPU, tried with a small one that lies on its side.

    Raises:
        BackboneError: The device is none, or no installed package can use nvJPEG on it.
    """
    remedy = ("use ", Setting("preprocess", "fast"))
    if device.type != "cuda":
        raise BackboneError(
            f"preprocess 'gpu' decodes on an NVIDIA GPU, and the device is {device}",
            *remedy,
            parameter="preprocess",
        )
    small = _lying_jpeg()
    reasons = []
    for decode in map(_decode_by, PACKAGES):
        try:
            (pixels,) = decode([small], device)
        except (ImportError, AttributeError, TypeError, RuntimeError, OSError) as error:
            reasons.append(str(error).partition("\n")[0])
        else:
            return JpegDecoder(device, decode, turns=pixels.shape[1] > pixels.shape[2])
    raise BackboneError(
        f"no package here decodes JPEGs on {device} ({'; '.join(reasons)})",
        *remedy,
        parameter="preprocess",
    )


def _lying_jpeg() -> Tensor:
    """A JPEG of 16 by 8 pixels that is upright with 8 by 16."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    file = io.BytesIO()
    Image.new("RGB", (16, 8)).save(file, "JPEG", exif=exif)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _decode_by(package: str) -> DecodeJpegs:
    """The function of a package, which takes and returns lists."""

    def decode(encoded: Sequence[Tensor], device: torch.device) -> list[Tensor]:
        module = importlib.import_module(package)
        decoded: list[Tensor] = module.decode_jpeg(
            list(encoded), mode=module.ImageReadMode.RGB, device=device
        )
        return decoded

    return decode


PACKAGES = ("torchcodec.decoders", "torchvision.io")
