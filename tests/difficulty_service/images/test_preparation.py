"""Both modes of preparation compared with each other, open_clip and plain formulas."""

import io
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import open_clip
import PIL
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.base.errors import BackboneError, ImageError
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.images import nvjpeg
from difficulty_service.images.modes import Mode
from difficulty_service.images.nvjpeg import jpeg_decoder
from difficulty_service.images.preparation import (
    decoder_name,
    normalise,
    prepare,
    read_image,
    set_up_decoding_thread,
    stack,
)

MODES: tuple[Mode, ...] = ("fast", "exact")
CLIP_224 = Preprocessing(224, 224, "bicubic", (0.48, 0.46, 0.41), (0.27, 0.26, 0.28))


def photograph(width: int, height: int) -> Image.Image:
    """A smooth image with some noise, as a stand-in for a photograph."""
    rng = np.random.default_rng(width * height)
    coarse = rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = rng.integers(-8, 9, (height, width, 3))
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, file_format: str, **options: object) -> ImageOpener:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return lambda: io.BytesIO(buffer.getvalue())


def as_array(image: Tensor | Image.Image) -> NDArray[np.int64]:
    """Any decoded image as (height, width, 3) integers."""
    array = image.permute(1, 2, 0).numpy() if isinstance(image, Tensor) else np.asarray(image)
    return array.astype(np.int64)


@pytest.mark.parametrize("size", [(500, 400), (333, 501), (32, 32), (224, 224), (1, 1), (9, 300)])
@pytest.mark.parametrize("kind", ["RGB", "L"])
def test_exact_is_bit_identical_to_open_clip_before_normalisation(
    size: tuple[int, int], kind: str
) -> None:
    image = photograph(*size).convert(kind)
    transform = open_clip.image_transform(224, is_train=False, mean=(0, 0, 0), std=(1, 1, 1))

    prepared = prepare(encoded(image, "PNG"), CLIP_224, "exact")

    assert prepared.dtype == torch.uint8
    assert torch.equal(prepared.to(torch.float32).div(255), transform(image))


FITS = [
    Preprocessing((96, 64), (100, 70), "bicubic", (0, 0, 0), (1, 1, 1), fit="crop"),
    Preprocessing((96, 64), (100, 70), "bicubic", (0, 0, 0), (1, 1, 1), fit="squash"),
    Preprocessing((96, 64), (96, 64), "bicubic", (0, 0, 0), (1, 1, 1), "border", (9, 99, 200)),
]


@pytest.mark.parametrize("size", [(431, 300), (300, 431), (64, 96), (9, 700)])
@pytest.mark.parametrize("preprocessing", FITS, ids=lambda each: each.fit)
def test_fast_shows_the_same_part_as_exact_of_an_image_of_any_shape(
    preprocessing: Preprocessing, size: tuple[int, int]
) -> None:
    opener = encoded(photograph(*size), "PNG")

    fast, exact = (prepare(opener, preprocessing, mode).to(torch.int64) for mode in MODES)

    assert fast.shape == exact.shape == (3, 96, 64)
    assert (fast - exact).abs().to(torch.float64).mean() < 0.3


@pytest.mark.parametrize("mode", MODES)
def test_a_border_surrounds_the_whole_image_in_its_own_colour(mode: Mode) -> None:
    image = Image.new("RGB", (60, 20), (250, 0, 0))

    prepared = as_array(prepare(encoded(image, "PNG"), FITS[2], mode))

    top, whole, bottom = np.split(prepared, [37, 58])  # 64 x 21 pixels of 64 x 96
    assert (whole == (250, 0, 0)).all()
    assert (top == (9, 99, 200)).all()
    assert (bottom == (9, 99, 200)).all()


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("resize", [(224, 256), (32, 32)])
def test_fast_differs_from_exact_by_a_few_levels_only(
    file_format: str, resize: tuple[int, int]
) -> None:
    preprocessing = Preprocessing(*resize, "bicubic", (0, 0, 0), (1, 1, 1))
    opener = encoded(photograph(431, 300), file_format)

    fast, exact = (prepare(opener, preprocessing, mode).to(torch.int64) for mode in MODES)

    assert fast.shape == exact.shape == (3, resize[0], resize[0])
    assert (fast - exact).abs().max() <= 4
    assert (fast - exact).abs().to(torch.float64).mean() < 0.1


def test_bilinear_preprocessing_resizes_bilinearly() -> None:
    image = photograph(200, 200)
    preprocessing = Preprocessing(50, 50, "bilinear", (0, 0, 0), (1, 1, 1))

    prepared = prepare(encoded(image, "PNG"), preprocessing, "exact")

    expected = image.resize((50, 50), Image.Resampling.BILINEAR)
    assert (as_array(prepared) == as_array(expected)).all()


def test_the_longer_side_is_cropped_at_its_centre() -> None:
    pixels = np.zeros((40, 120, 3), dtype=np.uint8)
    pixels[:, 40:80] = 255
    preprocessing = Preprocessing(40, 40, "bicubic", (0, 0, 0), (1, 1, 1))

    prepared = [prepare(encoded(Image.fromarray(pixels), "PNG"), preprocessing, m) for m in MODES]

    assert all((image == 255).all() for image in prepared)


@pytest.mark.parametrize("mode", MODES)
def test_an_image_of_the_right_size_is_unchanged_and_others_are_resized_or_cropped(
    mode: Mode,
) -> None:
    image = photograph(32, 32)
    opener = encoded(image, "PNG")
    smaller, cut = (
        prepare(opener, Preprocessing(size, resize, "bicubic", (0, 0, 0), (1, 1, 1)), mode)
        for size, resize in [(24, 24), (24, 32)]
    )

    same = prepare(opener, Preprocessing(32, 32, "bicubic", (0, 0, 0), (1, 1, 1)), mode)

    assert (as_array(same) == as_array(image)).all()
    assert smaller.shape == cut.shape == (3, 24, 24)
    assert torch.equal(cut, same[:, 4:28, 4:28])
    assert not torch.equal(smaller, cut)


def test_normalise_subtracts_the_mean_and_divides_by_the_deviation_of_each_channel() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    mean, std = np.array(CLIP_224.mean), np.array(CLIP_224.std)

    normalised = normalise(images, CLIP_224, torch.float32)

    expected = (images.numpy() / 255 - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(normalised.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert images.dtype == torch.uint8


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(90, 61), (32, 32)])
def test_views_are_stored_in_memory_with_the_channels_last(
    mode: Mode, size: tuple[int, int]
) -> None:
    preprocessing = Preprocessing(32, 32, "bicubic", (0, 0, 0), (1, 1, 1))
    view = prepare(encoded(photograph(*size), "JPEG"), preprocessing, mode)

    views = stack([view, view])

    assert view.permute(1, 2, 0).is_contiguous()
    assert view.untyped_storage().nbytes() == view.numel(), "it holds no larger image"
    assert views.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(views, torch.stack([view, view]))


def test_normalise_gives_the_same_bits_for_any_memory_layout() -> None:
    images = torch.randint(0, 256, (2, 3, 5, 4), dtype=torch.uint8)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (CLIP_224.mean, CLIP_224.std))

    rows = normalise(images, CLIP_224, torch.float32)
    last = normalise(images.contiguous(memory_format=torch.channels_last), CLIP_224, torch.float32)

    assert torch.equal(rows, (images.to(torch.float32) / 255 - mean) / std)
    assert torch.equal(rows, last)


def test_normalise_rounds_to_the_given_precision_only_at_the_end() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)

    normalised = normalise(images, CLIP_224, torch.bfloat16)

    exact = normalise(images, CLIP_224, torch.float32)
    assert torch.equal(normalised, exact.to(torch.bfloat16))


def test_many_threads_give_the_same_images_as_one() -> None:
    openers = [encoded(photograph(60 + i, 90), "JPEG" if i % 2 else "TIFF") for i in range(24)]
    one_by_one = [prepare(opener, CLIP_224) for opener in openers]

    with ThreadPoolExecutor(8, initializer=set_up_decoding_thread) as pool:
        threaded = list(pool.map(lambda opener: prepare(opener, CLIP_224), openers))

    assert all(torch.equal(a, b) for a, b in zip(one_by_one, threaded, strict=True))


def test_decoding_threads_do_not_change_the_cores_of_the_calling_thread() -> None:
    before = torch.get_num_threads()

    with ThreadPoolExecutor(1, initializer=set_up_decoding_thread) as pool:
        inside = pool.submit(torch.get_num_threads).result()

    assert inside == 1
    assert torch.get_num_threads() == before


@pytest.mark.skipif(sys.platform != "linux", reason="priorities belong to processes")
def test_decoding_threads_have_a_lower_priority_than_the_calling_thread() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)

    with ThreadPoolExecutor(1, initializer=set_up_decoding_thread) as pool:
        inside = pool.submit(os.getpriority, os.PRIO_PROCESS, 0).result()

    assert inside == max(before, 10)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_the_libraries_that_pixels_depend_on_are_named_with_their_versions() -> None:
    pillow = f"pillow {PIL.__version__}"

    assert decoder_name("exact") == pillow
    assert re.fullmatch(rf"(torchcodec \d\S*, )?{re.escape(pillow)}", decoder_name("fast"))


@pytest.mark.parametrize("mode", MODES)
def test_the_file_is_closed_after_reading(mode: Mode) -> None:
    file = encoded(photograph(20, 20), "PNG")()

    read_image(lambda: file, mode)

    assert file.closed


@pytest.mark.parametrize("mode", MODES)
def test_an_image_too_elongated_to_resize_is_refused(mode: Mode) -> None:
    opener = encoded(Image.new("L", (60_000, 1)), "PNG")

    with pytest.raises(ImageError, match="60000 x 1 pixels are too elongated"):
        prepare(opener, CLIP_224, mode)


def test_only_an_nvidia_gpu_decodes_and_a_remedy_is_named() -> None:
    with pytest.raises(BackboneError, match=r"decodes on an NVIDIA GPU, and the device is cpu"):
        jpeg_decoder(torch.device("cpu"))


def test_a_gpu_without_a_package_that_decodes_is_refused_with_each_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvjpeg, "PACKAGES", ("no_such_package", "math"))

    with pytest.raises(BackboneError, match=r"cuda:7 \(No module named.*; .*decode_jpeg.*\)"):
        jpeg_decoder(torch.device("cuda:7"))


@pytest.mark.parametrize(("more", "decodes"), [(0, True), (nvjpeg.MOST_BYTES, False)])
def test_a_gpu_does_not_decode_large_files(more: int, *, decodes: bool) -> None:
    with encoded(photograph(40, 30), "JPEG")() as file:
        data = file.read() + bytes(more)  # which decoders overlook

    assert nvjpeg.JpegCollector().add(data, max_pixels=1200, image=0) is decodes
