"""Random views are reproducible on any machine and in any order."""

import io
from typing import BinaryIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.images.modes import Mode
from difficulty_service.images.preparation import decode, prepare
from difficulty_service.images.views import (
    MIN_AREA_OF_TRAINING,
    Augmentation,
    ViewKind,
    draw_crop,
    draw_shift,
    to_views,
)

PREPROCESSING = Preprocessing(32, 32, "bicubic", (0, 0, 0), (1, 1, 1))


def opener() -> BinaryIO:
    """A PNG of 90 x 60 pixels whose red grows to the right and whose green grows downwards."""
    down, right = np.mgrid[0:60, 0:90]
    pixels = np.dstack([right * 2, down * 4, np.zeros_like(down)]).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return io.BytesIO(buffer.getvalue())


def views_of(sample_id: str, augmentation: Augmentation, mode: Mode = "fast") -> Tensor:
    """All views of an image, read anew."""
    return to_views(decode(opener, mode), PREPROCESSING, sample_id, augmentation)


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_the_views_of_a_sample_are_reproducible(mode: Mode) -> None:
    first = views_of("a/1.png", Augmentation(5), mode)
    views_of("b/2.png", Augmentation(3), mode)
    second = views_of("a/1.png", Augmentation(5), mode)

    assert first.shape == (5, 3, 32, 32)
    assert first.dtype == torch.uint8
    assert torch.equal(first, second)


def test_fewer_runs_give_the_first_views_of_more_runs() -> None:
    many = views_of("x", Augmentation(5))
    few = views_of("x", Augmentation(2))

    assert torch.equal(many[:2], few)


@pytest.mark.parametrize(
    ("sample_id", "augmentation"), [("y", Augmentation(1)), ("x", Augmentation(1, seed=1))]
)
def test_another_sample_or_seed_gives_other_views(
    sample_id: str, augmentation: Augmentation
) -> None:
    reference = views_of("x", Augmentation(1))
    other = views_of(sample_id, augmentation)

    assert not torch.equal(reference, other)


def test_both_modes_crop_the_same_views() -> None:
    fast = views_of("x", Augmentation(8), "fast").to(torch.int64)
    exact = views_of("x", Augmentation(8), "exact").to(torch.int64)

    assert (fast - exact).abs().max() <= 2


def test_about_half_of_the_views_are_mirrored() -> None:
    views = views_of("x", Augmentation(200)).to(torch.int64)

    grows_to_the_right = views[:, 0, 16, -1] > views[:, 0, 16, 0]
    assert 70 < int(grows_to_the_right.sum()) < 130
    assert (views[:, 1, -1, 16] > views[:, 1, 0, 16]).all()


def test_crops_keep_35_to_100_percent_of_the_area_and_a_ratio_near_one() -> None:
    crops = [draw_crop(1000, 1000, str(key)) for key in range(2000)]

    areas = np.array([crop.height * crop.width for crop in crops]) / 1e6
    ratios = np.array([crop.width / crop.height for crop in crops])
    assert 0.34 < areas.min() < 0.37
    assert areas.max() <= 1
    assert ratios.min() > 0.74
    assert ratios.max() < 1.35


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (33, 7)])
def test_crops_stay_inside_images_of_any_shape(size: tuple[int, int]) -> None:
    crops = [draw_crop(*size, str(key)) for key in range(200)]

    assert all(crop.top + crop.height <= size[0] for crop in crops)
    assert all(crop.left + crop.width <= size[1] for crop in crops)
    assert all(min(crop.height, crop.width) >= 1 for crop in crops)


def test_a_view_differs_from_the_plain_image() -> None:
    view = views_of("x", Augmentation(1))[0]

    assert not torch.equal(view, prepare(opener, PREPROCESSING))


@pytest.mark.parametrize("kind", ["flip_crop", "random_resized_crop"])
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_views_of_every_kind_are_reproducible_and_follow_the_seed(
    kind: ViewKind, mode: Mode
) -> None:
    many = views_of("x", Augmentation(5, 3, kind), mode)

    assert torch.equal(many[:2], views_of("x", Augmentation(2, 3, kind), mode))
    assert not torch.equal(many, views_of("x", Augmentation(5, 4, kind), mode))
    assert not torch.equal(many, views_of("x", Augmentation(5, 3), mode))


def test_random_resized_crops_keep_8_to_100_percent_of_the_area() -> None:
    crops = [draw_crop(1000, 1000, str(key), MIN_AREA_OF_TRAINING) for key in range(2000)]

    areas = np.array([crop.height * crop.width for crop in crops]) / 1e6
    assert 0.079 < areas.min() < 0.1
    assert np.median(areas) == pytest.approx(0.54, abs=0.03)


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_flip_crop_is_a_window_of_the_image_with_a_black_border(mode: Mode) -> None:
    pixels = np.random.default_rng(0).integers(1, 256, (32, 32, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    decoded = decode(lambda: io.BytesIO(buffer.getvalue()), mode)

    views = to_views(decoded, PREPROCESSING, "x", Augmentation(60, kind="flip_crop"))

    bordered = np.pad(pixels, ((4, 4), (4, 4), (0, 0)))
    windows = [bordered[top : top + 32, left : left + 32] for top in range(9) for left in range(9)]
    both = [each.tobytes() for window in windows for each in (window, window[:, ::-1])]
    found = {both.index(view.permute(1, 2, 0).numpy().tobytes()) for view in views}
    assert len(found) > 30


def test_images_are_moved_by_up_to_an_eighth_of_their_sides() -> None:
    moves = [draw_shift(32, 80, str(key)) for key in range(2000)]

    down, right, mirrored = (np.array(each) for each in zip(*moves, strict=True))
    assert (down.min(), down.max()) == (-4, 4)
    assert (right.min(), right.max()) == (-10, 10)
    assert mirrored.mean() == pytest.approx(0.5, abs=0.05)
