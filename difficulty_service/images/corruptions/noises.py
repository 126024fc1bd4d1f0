"""Noise of the sensor."""

import numpy as np

from difficulty_service.images.corruptions.pixels import Pixels


def gaussian_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Adds normal noise of this standard deviation."""
    return image + strength * generator.standard_normal(image.shape)


def shot_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Adds Poisson noise, with `strength` photons for white."""
    return generator.poisson(image * strength) / strength


def impulse_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Replaces a fraction of all values by black or white, with equal probability."""
    draws = generator.random(image.shape)
    return np.where(draws < strength, np.where(draws < strength / 2, 0.0, 1.0), image)


def speckle_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Adds normal noise in proportion to the value."""
    return image + image * (strength * generator.standard_normal(image.shape))
