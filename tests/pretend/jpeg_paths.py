"""Extraction where a GPU decodes JPEGs: the functions of two libraries, by the CPU in its place.

They differ as the real ones do: torchcodec applies the EXIF orientation, torchvision does not.
"""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image
from torch import Tensor
from torchcodec.decoders import decode_jpeg

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.device_copies import send
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.extraction import gpu_decoding
from difficulty_service.extraction.extracted_shard import ExtractedShard
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.images import nvjpeg
from tests.pretend.counting import Rounds
from tests.pretend.extraction_paths import BATCH_SIZE, NUM_BATCHES, NUM_ROUNDS, dataset_of

MAX_PIXELS = 5000
"""Fewer than the elongated image has after a resize."""

PACKAGE = "tests.pretend.jpeg_paths:stand-in"


def extract_jpegs(library: str, augment_runs: int = 0) -> dict[str, Any]:
    """What a batch of JPEGs waits for that the GPU decodes, and how far its features are off."""
    dataset = _dataset([encoded(_noise(number)) for number in range(BATCH_SIZE * NUM_BATCHES)])
    rounds = Rounds()
    with stand_in(library):
        there = _extract(dataset, "cuda", rounds, augment_runs=augment_runs)
    here = _extract(dataset, "cpu", Rounds(), augment_runs=augment_runs)
    return {**rounds.each(NUM_ROUNDS), **_compared(there, here)}


def extract_all_kinds(library: str, most_pixels: int | None = None) -> dict[str, Any]:
    """How far features of images of all kinds are off, which the GPU decoded, and which are bad."""
    images = every_kind()
    dataset = _dataset([*images.values()])
    whole = nvjpeg.MOST_PIXELS
    nvjpeg.MOST_PIXELS = most_pixels or whole
    given: list[bytes] = []
    try:
        with stand_in(library, given=given, refused=images["progressive"]):
            there = _extract(dataset, "cuda", Rounds())
    finally:
        nvjpeg.MOST_PIXELS = whole
    decoded = [name for name, data in images.items() if data in given]
    here = _extract(dataset, "cpu", Rounds())
    bad = {image.sample_id: image.reason for image in there.bad_images}
    assert bad == {image.sample_id: image.reason for image in here.bad_images}
    return {
        **_compared(there, here),
        "decoded": decoded,
        "bad": [[*images][int(row)] for row in bad],
    }


def without_memory() -> dict[str, Any]:
    """The features where the GPU has no memory to resize an image."""
    dataset = _dataset([encoded(_noise(number)) for number in range(BATCH_SIZE)])
    views_of = gpu_decoding.views_of
    refused: list[str] = []

    def scarce(sample_id: str, pixels: Tensor, *rest: Any) -> Any:
        if pixels.is_cuda:
            refused.append(sample_id)
            raise torch.OutOfMemoryError
        return views_of(sample_id, pixels, *rest)

    gpu_decoding.views_of = scarce
    try:
        with stand_in("torchcodec"):
            there = _extract(dataset, "cuda", Rounds())
    finally:
        gpu_decoding.views_of = views_of
    return {**_compared(there, _extract(dataset, "cpu", Rounds())), "refused": len(refused)}


def every_kind() -> dict[str, bytes]:
    """Images of which the GPU decodes some, by name."""
    pixels = _noise(0)
    cmyk = io.BytesIO()
    Image.fromarray(pixels).convert("CMYK").save(cmyk, "JPEG")
    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "PNG")
    plain = encoded(pixels)
    kinds = {
        "plain": plain,
        "png": png.getvalue(),
        "grey": encoded(pixels[..., 0]),
        "cmyk": cmyk.getvalue(),
        "colours as they are": encoded(pixels, keep_rgb=True),
        "colours as they are, by a marker": _numbered(encoded(pixels, keep_rgb=True)),
        "colours as they are, by their names": _unmarked(encoded(pixels, keep_rgb=True)),
        "elongated": encoded(np.zeros((2, 1600, 3), np.uint8)),
        "cut short": plain[: len(plain) // 2],
        "zeros after its end": plain + bytes(100),
        "progressive": encoded(pixels, progressive=True),
        "no image": b"no image",
    }
    return kinds | {
        f"orientation {number}": encoded(pixels, exif=_oriented(number)) for number in range(1, 9)
    }


def encoded(pixels: np.ndarray[Any, Any], **options: object) -> bytes:
    """A JPEG without a loss of colour that libraries make good in different ways."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, subsampling=0, **options)
    return file.getvalue()


@contextmanager
def stand_in(
    library: str, given: list[bytes] | None = None, refused: bytes | None = None
) -> Iterator[None]:
    """The function of a library that decodes for a GPU.

    Args:
        library: torchcodec or torchvision.
        given: Is told what was decoded.
        refused: An image that it does not decode.
    """

    def decode(images: Sequence[Tensor], mode: str, device: torch.device) -> list[Tensor]:
        assert mode == "RGB"
        contents = [image.numpy().tobytes() for image in images]
        if refused in contents:
            raise RuntimeError("nvjpegDecode failed: 2")
        if given is not None:
            given.extend(contents)
        return [send(_decoded(content, library), device) for content in contents]

    module = SimpleNamespace(decode_jpeg=decode, ImageReadMode=SimpleNamespace(RGB="RGB"))
    packages, nvjpeg.PACKAGES = nvjpeg.PACKAGES, (PACKAGE,)
    sys.modules[PACKAGE] = module  # type: ignore[assignment]
    nvjpeg.jpeg_decoder.cache_clear()
    try:
        yield
    finally:
        nvjpeg.PACKAGES = packages
        del sys.modules[PACKAGE]
        nvjpeg.jpeg_decoder.cache_clear()


def _decoded(content: bytes, library: str) -> Tensor:
    if library == "torchcodec":
        return decode_jpeg(content, mode="RGB")
    with Image.open(io.BytesIO(content)) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def _extract(
    dataset: Dataset, device: str, rounds: Rounds, augment_runs: int = 0
) -> ExtractedShard:
    options = ExtractOptions(
        batch_size=BATCH_SIZE * max(1, augment_runs),
        workers=1,
        preprocess="gpu" if device == "cuda" else "fast",
        augment_runs=augment_runs,
        max_pixels=MAX_PIXELS,
    )
    network = BackboneOptions(device=torch.device(device))
    task = ExtractionTask(dataset, "builtin", network, options)
    return extract_shard(task, load_backbone("builtin", network), 0, rounds.end)


def _compared(there: ExtractedShard, here: ExtractedShard) -> dict[str, Any]:
    assert list(there.table.sample_ids) == list(here.table.sample_ids)
    looks = there.table.appearance, here.table.appearance
    features, expected = there.table.features, here.table.features
    apart = (features - expected).norm(dim=1) / expected.norm(dim=1)
    return {"apart": float(apart.max()), "same look": looks[0].equals(looks[1])}


def _noise(seed: int) -> np.ndarray[Any, Any]:
    """A smooth picture that lies on its side. Shape (48, 80, 3)."""
    generator = np.random.default_rng(seed)
    small = Image.fromarray(generator.integers(0, 256, (6, 10, 3), dtype=np.uint8))
    return np.array(small.resize((80, 48), Image.Resampling.BICUBIC))


def _numbered(jpeg: bytes) -> bytes:
    """The JPEG with the usual ids of components; another marker says that they are colours."""
    frame, scan = jpeg.index(b"\xff\xc0") + 10, jpeg.index(b"\xff\xda") + 5
    content = bytearray(jpeg)
    for number in range(3):
        assert content[frame + 3 * number] == content[scan + 2 * number] == b"RGB"[number]
        content[frame + 3 * number] = content[scan + 2 * number] = number + 1
    with Image.open(io.BytesIO(content)) as image:
        assert image.info["adobe_transform"] == 0
    return bytes(content)


def _unmarked(jpeg: bytes) -> bytes:
    """The JPEG without that marker, whose components are called R, G and B."""
    start = jpeg.index(b"\xff\xee")
    length = int.from_bytes(jpeg[start + 2 : start + 4], "big")
    return jpeg[:start] + jpeg[start + 2 + length :]


def _oriented(number: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = number
    return exif


def _dataset(images: list[bytes]) -> Dataset:
    return dataset_of(images, DatasetOptions())
