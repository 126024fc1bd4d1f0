"""Corrupted images: reproducible, stronger with severity, and what each kind should be."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from difficulty_service.base.errors import ConfigError
from difficulty_service.images.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    Corruption,
    corrupt,
    parse_corruption,
)

NOISES = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise")
BLURS = ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur")
RANDOM = (*NOISES, "glass_blur", "snow", "frost", "fog", "spatter", "elastic_transform")


def _photographs(num_samples: int = 24, side: int = 32) -> Tensor:
    """Smooth colours, each with an edge elsewhere, and grain. Shape (samples, 3, side, side)."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(num_samples, 3, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
    edges = torch.randint(side, (num_samples, 1, 1, 1), generator=generator)
    shaded = torch.where(torch.arange(side) < edges, smooth, 0.4 * smooth)
    grain = 0.05 * torch.randn(smooth.shape, generator=generator)
    return ((shaded + grain).clamp(0, 1) * 255).to(torch.uint8)


def _distance(first: Tensor, second: Tensor) -> float:
    return float((first.double() - second.double()).square().mean().sqrt())


@pytest.mark.parametrize("side", [32, 64, 128])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_shape_and_type_are_kept_and_the_input_is_left_alone(name: str, side: int) -> None:
    images = _photographs(2, side)[:, :, : side - 5]
    before = images.clone()

    corrupted = corrupt(images, name, 5, seed=0)

    assert corrupted.shape == images.shape
    assert corrupted.dtype == torch.uint8
    assert torch.equal(images, before)
    assert not torch.equal(corrupted, images)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_corrupted_in_the_same_way_in_any_batch(name: str) -> None:
    images = _photographs(6)

    together = corrupt(images, name, 3, seed=1)
    reversed_order = corrupt(images.flip(0), name, 3, seed=1).flip(0)
    alone = torch.cat([corrupt(image[None], name, 3, seed=1) for image in images])

    assert torch.equal(together, reversed_order)
    assert torch.equal(together, alone)


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_drawn_differs_between_seeds_and_between_images(name: str) -> None:
    images = _photographs(1).repeat(2, 1, 1, 1)
    images[1, 0, 0, 0] += 1

    first, second = corrupt(images, name, 5, seed=0), corrupt(images, name, 5, seed=1)

    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


# The two lowest severities of "saturate" take colour away and the others add some; those of
# "spatter" are water and mud. The constants of the others change in more than one way.
UNEVEN = {"saturate", "spatter", "glass_blur", "snow", "frost", "elastic_transform"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - UNEVEN))
@pytest.mark.parametrize("side", [32, 64, 128])
def test_images_get_farther_from_the_original_with_severity(name: str, side: int) -> None:
    images = _photographs(side=side)

    distances = [_distance(corrupt(images, name, severity, 0), images) for severity in SEVERITIES]

    assert all(np.diff(distances) > 0), distances


def test_gaussian_noise_has_the_standard_deviation_of_the_benchmark_for_small_images() -> None:
    images = torch.full((8, 3, 32, 32), 128, dtype=torch.uint8)

    noise = corrupt(images, "gaussian_noise", 5, seed=0).double() - 128

    assert float(noise.std()) == pytest.approx(0.10 * 255, rel=0.03)


@pytest.mark.parametrize(("side", "standard_deviation"), [(63, 0.04), (64, 0.04), (128, 0.08)])
def test_the_benchmark_is_chosen_by_the_smaller_side(side: int, standard_deviation: float) -> None:
    images = torch.full((4, 3, side, 200), 128, dtype=torch.uint8)

    noise = corrupt(images, "gaussian_noise", 1, seed=0).double() - 128

    assert float(noise.std()) == pytest.approx(standard_deviation * 255, rel=0.03)


def test_impulse_noise_makes_a_fraction_of_values_black_or_white_and_keeps_the_rest() -> None:
    images = torch.full((8, 3, 32, 32), 77, dtype=torch.uint8)

    values, counts = corrupt(images, "impulse_noise", 5, seed=0).unique(return_counts=True)

    shares = (counts / images.numel()).tolist()
    assert values.tolist() == [0, 77, 255]
    assert shares == pytest.approx([0.035, 0.93, 0.035], abs=0.005)


def test_shot_noise_keeps_black_and_has_the_variance_of_counted_photons() -> None:
    images = torch.full((8, 3, 32, 32), 51, dtype=torch.uint8)

    noise = corrupt(images, "shot_noise", 5, seed=0).double() / 255
    black = corrupt(torch.zeros_like(images), "shot_noise", 5, seed=0)

    assert float(noise.var()) == pytest.approx(0.2 / 50, rel=0.06)
    assert not black.any()


@pytest.mark.parametrize("name", [*BLURS, "contrast", "elastic_transform", "pixelate"])
@pytest.mark.parametrize("value", range(0, 256, 15))
def test_uniform_images_do_not_change_by_blur_and_pixelation(name: str, value: int) -> None:
    images = torch.full((1, 3, 32, 32), value, dtype=torch.uint8)

    assert torch.equal(corrupt(images, name, 5, seed=0), images)


def test_a_point_out_of_focus_is_a_disk() -> None:
    images = torch.zeros(1, 3, 128, 128, dtype=torch.uint8)
    images[0, :, 64, 64] = 255
    disk_area = sum(r**2 + c**2 <= 3**2 for r in range(-3, 4) for c in range(-3, 4))

    blurred = corrupt(images, "defocus_blur", 1, seed=0)[0, 0]

    assert int((blurred > 0).sum()) == disk_area
    assert int(blurred[64, 64]) == 255 // disk_area


def test_contrast_pulls_every_channel_towards_its_mean() -> None:
    images = torch.tensor([[0, 200], [100, 100]], dtype=torch.uint8).repeat(1, 3, 1, 1)

    (image,) = corrupt(images, "contrast", 2, seed=0)

    assert image[0].tolist() == [[50, 150], [100, 100]]


def test_brightness_keeps_the_ratio_of_the_channels_and_makes_black_grey() -> None:
    images = torch.tensor([[120, 0], [60, 0], [30, 0]], dtype=torch.uint8).reshape(1, 3, 1, 2)

    (image,) = corrupt(images, "brightness", 5, seed=0)

    expected = [int(120 + 0.3 * 255), int((120 + 0.3 * 255) / 2), int((120 + 0.3 * 255) / 4)]
    assert image[:, 0, 0].tolist() == expected
    assert image[:, 0, 1].tolist() == [int(0.3 * 255)] * 3


def test_saturation_moves_channels_towards_the_brightest_one() -> None:
    images = torch.tensor([200, 100, 150], dtype=torch.uint8).reshape(1, 3, 1, 1)

    (image,) = corrupt(images, "saturate", 1, seed=0)

    assert image.flatten().tolist() == [200, 200 - 30, 200 - 15]


def test_grey_is_treated_as_red_where_saturation_is_added() -> None:
    images = torch.full((1, 3, 1, 1), 100, dtype=torch.uint8)

    (image,) = corrupt(images, "saturate", 5, seed=0)

    assert image.flatten().tolist() == [100, 80, 80]


def test_compression_matches_a_file_with_the_quality_of_the_benchmark() -> None:
    images = _photographs(1)
    file = io.BytesIO()
    Image.fromarray(images[0].permute(1, 2, 0).numpy()).save(file, "JPEG", quality=40)

    (image,) = corrupt(images, "jpeg_compression", 5, seed=0)

    assert torch.equal(image, torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1))


def test_pixelation_has_the_resolution_of_the_benchmark() -> None:
    images = (torch.arange(128)[:, None] + torch.arange(128)).to(torch.uint8).repeat(1, 3, 1, 1)

    (image,) = corrupt(images, "pixelate", 5, seed=0)

    blocks = image.reshape(3, 32, 4, 32, 4)
    assert (blocks == blocks[:, :, :1, :, :1]).all()


def test_an_unknown_corruption_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"no corruption 'rain'; choose one of gaussian_noise, shot"
    ):
        corrupt(_photographs(1), "rain", 1, seed=0)


@pytest.mark.parametrize("severity", [0, 6])
def test_a_severity_out_of_range_is_refused(severity: int) -> None:
    with pytest.raises(ConfigError, match=rf"severity is {severity}; choose one of"):
        corrupt(_photographs(1), "contrast", severity, seed=0)


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(1, 3, 4, 4),
        torch.zeros(3, 4, 4, dtype=torch.uint8),
        torch.zeros(1, 1, 4, 4, dtype=torch.uint8),
        torch.zeros(1, 3, 4, 4, 1, dtype=torch.uint8),
    ],
)
def test_a_tensor_that_is_not_a_batch_of_images_is_refused(images: Tensor) -> None:
    with pytest.raises(ConfigError, match=r"give torch.uint8 of shape \(samples, 3"):
        corrupt(images, "contrast", 1, seed=0)


def test_an_empty_batch_is_valid() -> None:
    images = torch.zeros(0, 3, 32, 32, dtype=torch.uint8)

    assert corrupt(images, "contrast", 1, seed=0).shape == images.shape


def test_large_images_are_reduced_before_they_are_corrupted() -> None:
    (large,) = _photographs(1, 600)

    corrupted = Corruption("contrast", 1).apply(large[:, :, :500])

    assert corrupted.shape == (3, 307, 256)
    assert Corruption("contrast", 1).apply(large[:, :200, :220]).shape == (3, 200, 220)


def test_name_and_severity_are_read_and_written() -> None:
    corruption = parse_corruption("glass_blur:4", seed=7)

    assert corruption == Corruption("glass_blur", 4, 7)
    assert str(corruption) == "glass_blur:4"
