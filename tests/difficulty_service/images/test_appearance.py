"""The numbers that tell how an image looks."""

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from difficulty_service.images.appearance import (
    GRID,
    NUMBERS,
    from_struct,
    measure,
    sample_pixels,
    to_struct,
)

Pixels = NDArray[np.uint8]


def scene(height: int = 90, width: int = 120, seed: int = 0) -> Pixels:
    """Patches of several sizes with sharp edges."""
    generator = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), 120, np.uint8)
    for _ in range(60):
        top, left = generator.integers(0, (height, width))
        tall, wide = generator.integers(3, 30, 2)
        pixels[top : top + tall, left : left + wide] = generator.integers(0, 255, 3)
    return pixels


def numbers_of(pixels: Pixels) -> dict[str, float]:
    return dict(zip(NUMBERS, measure([sample_pixels(pixels)])[0].tolist(), strict=True))


def blurred(pixels: Pixels, radius: float) -> Pixels:
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))


@pytest.mark.parametrize(("height", "width"), [(90, 120), (7, 200), (1100, 800), (24, 24), (5, 5)])
def test_the_numbers_are_those_of_loops_over_the_grid(height: int, width: int) -> None:
    pixels = scene(height, width).astype(np.int64)
    pixels[-height // 3 :] = 128
    step = max(1, round(min(height, width) / 256))
    rows = [place * (height - 1 - 4 * step) // (GRID - 1) for place in range(GRID)]
    columns = [place * (width - 1 - 4 * step) // (GRID - 1) for place in range(GRID)]
    luma, second, far = [], {"x": [], "y": []}, {"x": [], "y": []}
    for y in rows:
        for x in columns:
            red, green, blue = pixels[y, x].tolist()
            luma.append((2 * red + 5 * green + blue) // 8)
            for axis, (down, right) in {"x": (0, step), "y": (step, 0)}.items():
                line = [pixels[y + k * down, x + k * right, 1] for k in range(5)]
                second[axis].append(line[0] - 2 * line[1] + line[2])
                far[axis].append(line[4] - line[0])
    across = {axis: np.sqrt(np.mean(np.square(far[axis]))) for axis in far}
    ratios = {
        axis: np.sqrt(np.mean(np.square(second[axis]))) / (across[axis] + 1)
        for axis in far
        if across[axis] >= max(across.values()) / 4
    }
    grey = 0
    for y in reversed(rows):
        if not all((pixels[y, x] == 128).all() for x in columns):
            break
        grey += 1

    numbers = numbers_of(pixels.astype(np.uint8))

    expected = {
        "height": height,
        "width": width,
        **{
            f"p{share:02}": sorted(luma)[round(share / 100 * (GRID**2 - 1))]
            for share in (1, 25, 99)
        },
        "sharpness": min(ratios.values()),
        "grey_rows": grey / GRID,
    }
    assert numbers == pytest.approx(expected, rel=1e-5)


def test_images_measured_together_have_the_numbers_of_each_alone() -> None:
    images = [scene(90, 120), scene(33, 40, seed=1), scene(300, 280, seed=2)]

    together = measure([sample_pixels(image) for image in images])

    for image, row in zip(images, together, strict=True):
        np.testing.assert_array_equal(row, measure([sample_pixels(image)])[0])


def test_a_blurred_image_is_less_sharp_and_a_dark_one_is_not() -> None:
    image = scene()

    sharp, dark = numbers_of(image), numbers_of(image // 4)
    soft = [numbers_of(blurred(image, radius))["sharpness"] for radius in (1, 2, 4)]

    assert dark["sharpness"] == pytest.approx(sharp["sharpness"], rel=0.1)
    assert sharp["sharpness"] > 2 * soft[0] > 3 * soft[1] > 4 * soft[2]


def test_blur_along_one_direction_is_found() -> None:
    image = scene(200, 200)
    moved = np.mean([np.roll(image, shift, axis=1) for shift in range(9)], axis=0)

    sharp, blurry = numbers_of(image), numbers_of(moved.astype(np.uint8))

    assert blurry["sharpness"] < sharp["sharpness"] / 2


def test_stripes_are_as_sharp_as_their_edges() -> None:
    stripes = np.zeros((60, 60, 3), np.uint8)
    stripes[:, np.arange(60) % 10 < 5] = 200

    for image in (stripes, stripes.transpose(1, 0, 2)):
        assert numbers_of(image)["sharpness"] > 0.5


def test_an_image_without_room_for_four_steps_has_no_sharpness() -> None:
    numbers = numbers_of(scene(4, 40))

    assert np.isnan(numbers["sharpness"])
    assert (numbers["height"], numbers["width"]) == (4, 40)


def test_grey_that_reaches_not_the_lowest_row_is_not_counted() -> None:
    image = scene()
    image[40:80] = 128

    assert numbers_of(image)["grey_rows"] == 0


def test_numbers_come_back_from_their_column_and_unknown_ones_are_nan() -> None:
    numbers = measure([sample_pixels(scene(seed=seed)) for seed in range(5)])
    numbers[3, NUMBERS.index("sharpness")] = np.nan

    column = to_struct(numbers)

    np.testing.assert_array_equal(from_struct(column[1:4]), numbers[1:4])
    np.testing.assert_array_equal(from_struct(column.take(np.array([4, 0]))), numbers[[4, 0]])
