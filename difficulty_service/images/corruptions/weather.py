"""Snow, frost, fog and spatter."""

import numpy as np
from scipy.ndimage import (
    binary_erosion,
    convolve,
    distance_transform_edt,
    gaussian_filter,
    uniform_filter,
)

from difficulty_service.images.corruptions.pixels import Layer, Pixels, move_blur, zoom_in

_GREY = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue."""

_WATER = np.array([175, 238, 238]) / 255
_MUD = np.array([63, 42, 20]) / 255
_LARGEST_DISTANCE = 20
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float64)
_FEWEST_MUD = 0.8
_FROST_DECAY, _CRYSTAL_DECAY = 1.6, 1.4


def fog(image: Pixels, strength: tuple[float, float], generator: np.random.Generator) -> Pixels:
    """Adds a cloud of some weight and decay of detail, and scales the brightest value back."""
    weight, decay = strength
    brightest = image.max()
    cloudy = image + weight * cloud(image.shape[1:], decay, generator)
    return cloudy * brightest / (brightest + weight)


def frost(image: Pixels, strength: tuple[float, float], generator: np.random.Generator) -> Pixels:
    """Adds a layer of ice.

    The published images have photographs of frosted panes here. This one is drawn: bright ridges of
    crystals, of the same weight, over a pale cloud.
    """
    kept, added = strength
    ridges = 1 - np.abs(2 * cloud(image.shape[1:], _CRYSTAL_DECAY, generator) - 1)
    pale = cloud(image.shape[1:], _FROST_DECAY, generator)
    ice = np.clip(0.35 * pale + 0.65 * ridges**2, 0, 1)
    tint = np.array([0.92, 0.97, 1.0])[:, None, None]  # of ice, faintly blue
    return kept * image + added * tint * ice


def snow(
    image: Pixels,
    strength: tuple[float, float, float, float, int, float, float],
    generator: np.random.Generator,
) -> Pixels:
    """Bleaches the image and adds flakes that fall in two directions.

    The strength is mean and standard deviation of the noise from which flakes are made, its
    enlargement, the value from which it is a flake, radius and standard deviation of their blur,
    and the share of the image that is not bleached.
    """
    mean, spread, factor, least, radius, sigma, kept = strength
    noise = generator.normal(mean, spread, (1, *image.shape[1:]))
    enlarged = zoom_in(noise, factor)
    flakes = np.clip(np.where(enlarged < least, 0, enlarged), 0, 1)
    (falling,) = move_blur(flakes, radius, sigma, generator.uniform(-135, -45))
    grey = np.tensordot(_GREY, image, axes=1)
    bleached = kept * image + (1 - kept) * np.maximum(image, 1.5 * grey + 0.5)
    return bleached + falling + np.rot90(falling, 2)


def spatter(
    image: Pixels,
    strength: tuple[float, float, float, float, float, bool],
    generator: np.random.Generator,
) -> Pixels:
    """Sprinkles the lens with water or mud.

    The published images find the outlines of drops by Canny's method; here they are the pixels at
    the border of a drop. The strength is mean, standard deviation and blur of the noise from which
    drops are made, the value from which it is a drop, the opacity of water or the blur of mud, and
    whether it is mud.
    """
    mean, spread, blur, least, amount, is_mud = strength
    liquid = gaussian_filter(generator.normal(mean, spread, image.shape[1:]), blur, mode="nearest")
    if is_mud:
        mud = gaussian_filter((liquid > least).astype(np.float64), amount, mode="nearest")
        mud[mud < _FEWEST_MUD] = 0
        return image * (1 - mud) + _MUD[:, None, None] * mud
    drops = np.where(liquid < least, 0, liquid)
    water = drops * _shading(drops)
    return image + _WATER[:, None, None] * amount * water / max(float(water.max()), 1e-9)


def _shading(drops: Layer) -> Layer:
    """Light and shadow of drops, by the distance to their outlines."""
    inside = drops > 0
    outline = inside & ~binary_erosion(inside)
    if not outline.any():
        return np.zeros_like(drops)
    distance = np.minimum(distance_transform_edt(~outline), _LARGEST_DISTANCE)
    even = _equalise(uniform_filter(distance, 3))
    relief = np.clip(convolve(even, _RELIEF), 0, 255)
    return uniform_filter(relief, 3)


def _equalise(values: Layer) -> Layer:
    """Whole values from 0 to 255, each about as frequent as any other."""
    whole = values.astype(np.uint8)
    below = np.bincount(whole.ravel(), minlength=256).cumsum()
    least = below[whole.min()]
    return np.rint(255 * (below[whole] - least) / max(whole.size - least, 1))


def cloud(shape: tuple[int, int], decay: float, generator: np.random.Generator) -> Layer:
    """Fractal noise from 0 to 1, by the diamond-square algorithm on a torus.

    The square root of the noise is divided by `decay` from one level of detail to the next finer.
    """
    side = 1 << max(5, (max(shape) - 1).bit_length())
    grid = np.zeros((side, side))
    step, wobble = side, 100.0
    while step > 1:
        half, noise = step // 2, wobble**2
        corners = grid[::step, ::step]
        size = corners.shape
        above, beside = corners + np.roll(corners, -1, 0), corners + np.roll(corners, -1, 1)
        middles = (above + np.roll(above, -1, 1)) / 4 + generator.uniform(-noise, noise, size)
        grid[half::step, half::step] = middles
        between = (beside + middles + np.roll(middles, 1, 0)) / 4
        grid[::step, half::step] = between + generator.uniform(-noise, noise, size)
        between = (above + middles + np.roll(middles, 1, 1)) / 4
        grid[half::step, ::step] = between + generator.uniform(-noise, noise, size)
        step, wobble = half, wobble / decay
    grid -= grid.min()
    height, width = shape
    return (grid / grid.max())[:height, :width]
