"""Images are cut, mirrored and resized as by torchvision, bit for bit, without loading it."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from difficulty_service.images import resizing
from difficulty_service.images.resizing import (
    DecodedImage,
    crop,
    crop_centre,
    mirror,
    resize,
    resize_shorter_side,
    to_tensor,
)

SIZES = [(40, 61), (61, 40), (33, 33), (7, 90), (224, 31)]
KINDS = ("tensor", "picture")


def image_of(kind: str, height: int, width: int) -> DecodedImage:
    generator = np.random.default_rng(height * width)
    pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == "picture":
        return Image.fromarray(pixels)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def pixels_of(image: DecodedImage) -> np.ndarray:
    return np.asarray(image if isinstance(image, Image.Image) else image.permute(1, 2, 0))


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX2"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_resized_image_is_that_of_torchvision(
    kind: str,
    size: tuple[int, int],
    interpolation: str,
    capability: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image, mode = image_of(kind, *size), InterpolationMode(interpolation)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)

    square = resize(image, 32, 32, interpolation)
    shorter = resize_shorter_side(image, 24, interpolation)

    expected = F.resize(image, [32, 32], mode, antialias=True)
    np.testing.assert_array_equal(pixels_of(square), pixels_of(expected))
    expected = F.resize(image, [24], mode, antialias=True)
    np.testing.assert_array_equal(pixels_of(shorter), pixels_of(expected))


@pytest.mark.parametrize("wanted", [(7, 7), (20, 33), (33, 20), (50, 50), (120, 41)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_middle_is_that_of_torchvision_with_margins_where_it_is_too_large(
    kind: str, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    image = image_of(kind, *size)

    middle = crop_centre(image, *wanted, fill=(0, 0, 0))

    expected = F.center_crop(image, list(wanted))
    np.testing.assert_array_equal(pixels_of(middle), pixels_of(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_margins_have_the_colour_that_is_asked_for(kind: str) -> None:
    image = image_of(kind, 4, 9)

    middle = pixels_of(crop_centre(image, 7, 5, fill=(10, 20, 30)))

    assert middle.shape == (7, 5, 3)
    np.testing.assert_array_equal(middle[1:5], pixels_of(image)[:, 2:7])
    assert (np.delete(middle, range(1, 5), axis=0) == (10, 20, 30)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_and_a_mirror_image_are_those_of_torchvision(kind: str) -> None:
    image = image_of(kind, 40, 61)

    part, mirrored = crop(image, 3, 5, 20, 30), mirror(image)

    np.testing.assert_array_equal(pixels_of(part), pixels_of(F.crop(image, 3, 5, 20, 30)))
    np.testing.assert_array_equal(pixels_of(mirrored), pixels_of(F.horizontal_flip(image)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_is_stored_row_by_row_with_its_channels_together(kind: str) -> None:
    image = image_of(kind, 40, 61)

    tensor = to_tensor(mirror(image))
    resized = resize(to_tensor(image), 16, 16, "bicubic")

    assert isinstance(resized, torch.Tensor)
    assert tensor.permute(1, 2, 0).is_contiguous()
    assert resized.permute(1, 2, 0).is_contiguous()
    np.testing.assert_array_equal(pixels_of(tensor), pixels_of(image)[:, ::-1])


def test_whether_bytes_are_interpolated_as_they_are_follows_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    found = []
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        found.append(resizing.is_fast_in_bytes())

    assert found == [False, True]
