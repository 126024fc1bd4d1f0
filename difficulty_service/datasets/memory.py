"""Images that a program holds: PIL images, arrays and tensors, encoded bytes, or paths.

Everything after this reads encoded images, so those in memory are encoded again, without loss,
when they are opened.

Datasets that other packages read are of the same kind: `PREFIX:REFERENCE`. An entry point in the
group `difficulty.datasets` has the prefix as its name, and is a function of one parameter: it takes
what follows the colon, and returns a `PluggedDataset` or raises a `DifficultyError`. A package so
offers its format without importing this one.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import ExifTags, Image

from difficulty_service.base.errors import DatasetError, DifficultyError, ImageError
from difficulty_service.base.plugins import entry_point_of
from difficulty_service.datasets.image_openers import (
    cell_opener,
    open_location,
    refusing,
    text_opener,
)
from difficulty_service.datasets.listing import Listing, build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import resolve
from difficulty_service.images.header import held_orientation

ReadImage = Callable[[int], object]
"""Returns the image at a position, in one of the kinds of `image_opener`; may raise anything."""

PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16")
TIFF_MODES = ("CMYK", "F", "LAB", "YCbCr")
CHANNELS = (1, 3, 4)
MAX_PIXEL = 255


@dataclass(frozen=True)
class ImagesInMemory:
    """Labelled images of a program."""

    read_image: ReadImage
    sample_ids: Sequence[str]
    labels: NDArray[np.int32]
    class_names: tuple[str, ...]


def open_memory(images: ImagesInMemory, location: str, options: DatasetOptions) -> Dataset:
    """Opens images in memory as a dataset; what they show is no part of its fingerprint."""
    sizes = np.zeros(len(images.labels), dtype=np.int64)
    listing = Listing(images.class_names, images.sample_ids, images.labels, sizes)

    def open_at(positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
        for position in positions.tolist():
            yield partial(_open_at, images.read_image, position, options.modality)

    return build_dataset(location, options, listing, open_at, "row {}".format)


def _open_at(read_image: ReadImage, position: int, modality: str) -> BinaryIO:
    try:
        image = read_image(position)
    except DifficultyError:
        raise
    except Exception as error:
        raise ImageError(f"cannot be read: {type(error).__name__}: {error}") from error
    return text_opener(image)() if modality == "text" else image_opener(image)()


def image_opener(image: object) -> ImageOpener:
    """Opener of one image.

    Args:
        image: A PIL image; an array or tensor of shape (height, width), (height, width, channels)
            or (channels, height, width) with 1, 3 or 4 channels, of integers from 0 to 255 or
            floats from 0 to 1, or of uint16 with 1 channel; encoded bytes; a path or URI; or a
            struct `{bytes, path}` of a table.
    """
    if isinstance(image, Image.Image):
        return partial(_encode, image)
    if isinstance(image, str | os.PathLike):
        return partial(open_location, os.fspath(image))
    if isinstance(image, bytes | bytearray | memoryview):
        return cell_opener(bytes(image), resolve("."))
    if isinstance(image, dict):
        return cell_opener(image, resolve("."))
    if hasattr(image, "__array__"):
        return partial(_encode_array, image)
    return refusing(f"an object of type {type(image).__name__}, which is no image")


def _encode_array(array: object) -> BinaryIO:
    # A tensor may need a gradient or be on a GPU.
    detached: Any = array.detach().cpu() if hasattr(array, "detach") else array
    if str(getattr(detached, "dtype", "")) == "torch.bfloat16":  # which NumPy does not have
        detached = detached.float()
    values = np.asarray(detached)
    if values.ndim == 1:  # which Pillow takes to be one row of pixels
        raise ImageError(
            f"an array of shape {values.shape} is no image: reshape it to (height, width) or "
            "(height, width, channels)"
        )
    pixels = values if values.dtype == np.uint16 and values.size else _to_bytes(values)
    channels_first = hasattr(array, "detach")  # as in torchvision; arrays have them last
    if pixels.ndim == 3:  # noqa: PLR2004
        first, last = pixels.shape[0] in CHANNELS, pixels.shape[2] in CHANNELS
        if first and (channels_first or not last):
            pixels = pixels.transpose(1, 2, 0)
        elif not last:
            raise ImageError(
                f"an array of shape {values.shape} is no image: choose 1, 3 or 4 of its channels"
            )
        if pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
    if pixels.dtype == np.uint16 and pixels.ndim > 2:  # noqa: PLR2004
        raise ImageError(
            f"an array of uint16 and shape {pixels.shape}; pixels are uint8 from 0 to 255, or "
            "floats from 0 to 1, and of uint16 where they are grey: scale colours to one of these"
        )
    try:
        return _encode(Image.fromarray(np.ascontiguousarray(pixels)))
    except (TypeError, ValueError) as error:
        raise ImageError(f"an array of shape {pixels.shape} is no image: {error}") from error


def _to_bytes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Pixels as uint8: integers from 0 to 255 as they are, floats from 0 to 1 times 255.

    Those of uint16 stay what they are, and are scaled as those of files.
    """
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind not in "bif" or not pixels.size:
        raise ImageError(
            f"an array of {pixels.dtype} and shape {pixels.shape}; pixels are uint8 from 0 to 255, "
            "or floats from 0 to 1"
        )
    scale = 1 if pixels.dtype.kind == "i" else MAX_PIXEL
    low, high = pixels.min(), pixels.max()
    if not 0 <= low <= high <= MAX_PIXEL // scale:
        in_bytes = 0 <= low <= high <= MAX_PIXEL
        remedy = "convert them by `astype('uint8')`" if in_bytes else "leave out what scales them"
        raise ImageError(
            f"an array of {pixels.dtype} from {low:g} to {high:g}; pixels are uint8 from 0 to 255, "
            f"or floats from 0 to 1: {remedy}"
        )
    return np.rint(pixels.astype(np.float64) * scale).astype(np.uint8)


def _encode(image: Image.Image) -> BinaryIO:
    """Lossless and without compression, which would take longer than all that follows.

    The EXIF orientation that the image still holds goes along, so that it is turned as one of a
    file.
    """
    file = io.BytesIO()
    try:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = held_orientation(image)
        if image.mode in TIFF_MODES:
            image.save(file, "TIFF", exif=exif)
        else:
            known = image if image.mode in PNG_MODES else image.convert("RGBA")
            known.save(file, "PNG", compress_level=0, exif=exif)
    except (OSError, SyntaxError, ValueError) as error:
        raise ImageError(f"cannot be read: {error}") from error
    file.seek(0)
    return file


PLUGIN_GROUP = "difficulty.datasets"


class PluggedDataset(Protocol):
    """A dataset of another package; the ids are unique and stable from run to run."""

    sample_ids: Sequence[str]
    labels: ArrayLike
    class_names: Sequence[str]

    def read_image(self, position: int) -> Any:  # noqa: ANN401 - whatever it holds
        """The image at a position, called by several threads: PIL, an array, bytes or a path."""


def find_plugin(location: str) -> EntryPoint | None:
    """The entry point that the prefix of a location stands for; None if no package has it."""
    is_address = location.partition(":")[2].startswith("//")
    return None if is_address else entry_point_of(PLUGIN_GROUP, location)


def open_plugged(location: str, options: DatasetOptions) -> Dataset:
    """Opens a dataset of another package.

    Raises:
        DatasetError: The location is that of somebody who is confined to a folder, an option does
            not apply, or the package cannot read it.
    """
    plugin = find_plugin(location)
    if plugin is None or options.boundary is not None:
        raise DatasetError.of_location(
            f"{location!r} is read by another package, which knows no bounds, so only the command "
            "line and Python take it"
        )
    unused = ("split", "image_column", "label_column", "id_column", "text_column")
    check_options(options, f"the datasets of {plugin.value}", unused)
    try:
        held: PluggedDataset = plugin.load()(location.partition(":")[2])
        labels = np.asarray(held.labels, dtype=np.int32)
        names = tuple(map(str, held.class_names))
        ids = list(map(str, held.sample_ids))
    except DifficultyError:
        raise
    except Exception as error:
        raise DatasetError.of_location(
            f"{plugin.value} cannot read {location!r}: {type(error).__name__}: {error}"
        ) from error
    if labels.shape != (len(ids),) or (
        labels.size and not 0 <= labels.min() <= labels.max() < len(names)
    ):
        raise DatasetError.of_location(
            f"{plugin.value} gave {len(ids):,} samples of {len(names):,} classes, but labels of "
            f"shape {labels.shape} that are not all class indices"
        )
    return open_memory(ImagesInMemory(held.read_image, ids, labels, names), location, options)
