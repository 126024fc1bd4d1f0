"""Random augmentation of batches of images."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from trainer.config import Augmentation
from trainer.data.augmentation import (
    augmentation_of,
    crop_boxes,
    flip_crop,
    keep,
    mirror,
    random_resized_crop,
)
from trainer.samples import NUM_DRAWS

NAMES: tuple[Augmentation, ...] = ("none", "flip", "flip_crop", "random_resized_crop")


@pytest.fixture
def images() -> Tensor:
    """Images that are not square, so that swapped rows and columns are detected."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (40, 3, 9, 12), generator=generator, dtype=torch.uint8)


@pytest.fixture
def draws() -> Tensor:
    return torch.rand(40, NUM_DRAWS, generator=torch.Generator().manual_seed(1))


def naive_flip_crop(image: Tensor, draws: Tensor, padding: int) -> Tensor:
    _, height, width = image.shape
    padded = torch.zeros(3, height + 2 * padding, width + 2 * padding, dtype=torch.uint8)
    padded[:, padding : padding + height, padding : padding + width] = image
    top, left = (int(draw * (2 * padding + 1)) for draw in draws[1:3])
    window = padded[:, top : top + height, left : left + width]
    return window.flip(2) if draws[0] < 0.5 else window


def test_a_padded_crop_of_a_batch_matches_a_loop_over_images(images: Tensor, draws: Tensor) -> None:
    expected = [naive_flip_crop(*pair, padding=3) for pair in zip(images, draws, strict=True)]

    changed = flip_crop(images, draws, padding=3)

    assert torch.equal(changed, torch.stack(expected))


def test_a_padded_crop_reaches_every_corner_of_the_frame(images: Tensor) -> None:
    largest = 1 - 2**-24  # of float32 below one
    draws = torch.tensor([[0.9, 0.0, 0.0, 0, 0], [0.9, largest, largest, 0, 0]])

    first, last = flip_crop(images[:2], draws, padding=2)

    assert not first[:, :2].any()
    assert not first[:, :, :2].any()
    assert torch.equal(first[:, 2:, 2:], images[0, :, :-2, :-2])
    assert torch.equal(last[:, :-2, :-2], images[1, :, 2:, 2:])


def test_a_flip_mirrors_exactly_the_images_whose_draw_is_below_one_half(images: Tensor) -> None:
    draws = torch.tensor([[0.49] + [0.0] * 4, [0.5] + [0.0] * 4])

    changed = mirror(images[:2], draws)

    assert torch.equal(changed[0], images[0].flip(2))
    assert torch.equal(changed[1], images[1])


def test_without_augmentation_images_do_not_change(images: Tensor, draws: Tensor) -> None:
    assert torch.equal(keep(images, draws), images)


@pytest.mark.parametrize("name", NAMES)
def test_the_augmentation_of_a_sample_does_not_depend_on_its_batch(
    name: Augmentation, images: Tensor, draws: Tensor
) -> None:
    augment = augmentation_of(name, crop_padding=2)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(2))

    together = augment(images, draws)
    in_parts = [augment(images[part], draws[part]) for part in order.split(7)]

    assert torch.equal(torch.cat(in_parts), together[order])


@pytest.mark.parametrize("name", NAMES)
def test_augmented_images_keep_shape_and_type(
    name: Augmentation, images: Tensor, draws: Tensor
) -> None:
    changed = augmentation_of(name, crop_padding=4)(images, draws)

    assert changed.shape == images.shape
    assert changed.dtype == torch.uint8


def test_random_boxes_have_the_specified_range_of_areas_and_shapes() -> None:
    draws = torch.rand(2000, NUM_DRAWS, generator=torch.Generator().manual_seed(3))
    draws[:, 3] *= 0.6  # small enough for no side to be cut

    left, top, right, bottom = crop_boxes(draws, 60, 60).unbind(1)

    area = (right - left) * (bottom - top) / 3600
    ratio = (right - left) / (bottom - top)
    torch.testing.assert_close(area, 0.08 + 0.92 * draws[:, 3].double())
    assert ((ratio > 3 / 4 - 1e-9) & (ratio < 4 / 3 + 1e-9)).all()
    assert abs(ratio.log().mean().item()) < 0.02


def test_random_boxes_lie_inside_the_image() -> None:
    draws = torch.rand(2000, NUM_DRAWS, generator=torch.Generator().manual_seed(4))

    left, top, right, bottom = crop_boxes(draws, 30, 70).unbind(1)

    assert min(left.min(), top.min()) >= 0
    assert right.max() <= 70 + 1e-9
    assert bottom.max() <= 30 + 1e-9


def test_rows_and_columns_of_random_boxes_are_drawn_independently() -> None:
    draws = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0, 0.5]])

    upper_right, lower_left = crop_boxes(draws, 100, 100).round().tolist()

    assert upper_right == [72, 0, 100, 28]
    assert lower_left == [0, 72, 28, 100]


def test_a_random_resized_crop_matches_another_library(draws: Tensor) -> None:
    rows = torch.arange(64).view(1, 64, 1) * 2
    smooth = (rows + torch.arange(64).view(1, 1, 64)).expand(3, 64, 64).to(torch.uint8)
    draws[:, 0] = 0.9
    boxes = crop_boxes(draws, 64, 64).tolist()
    picture = Image.fromarray(smooth.permute(1, 2, 0).numpy())

    changed = random_resized_crop(smooth.expand(40, 3, 64, 64), draws)

    enlarged = [picture.resize((64, 64), Image.Resampling.BILINEAR, box=box) for box in boxes]
    expected = np.stack([np.asarray(image).transpose(2, 0, 1) for image in enlarged])
    assert np.abs(changed.numpy().astype(int) - expected).max() <= 1


def test_a_random_resized_crop_of_everything_is_the_image(images: Tensor) -> None:
    square = images[..., :9]
    draws = torch.tensor([[0.9, 0.3, 0.3, 1.0, 0.5]]).expand(len(images), -1)

    changed = random_resized_crop(square, draws)

    assert torch.equal(changed, square)
