"""Labels that are wrong on purpose, in three ways that the literature knows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Labels = NDArray[np.int64]

THUMBNAIL = 8
"""Side of the pictures whose pixels decide how instance-dependent noise falls."""

RATE_SPREAD = 0.1
"""Standard deviation of the rates of single images in instance-dependent noise."""


@dataclass(frozen=True)
class Truth:
    """What the ways to plant noise may look at; none sees the features that are tested.

    Attributes:
        labels: The right labels. Shape (samples,).
        successor: For each class, the one it is confused with. Shape (classes,).
        pixels: Small pictures, standardised. Shape (samples, values).
    """

    labels: Labels
    successor: Labels
    pixels: NDArray[np.float64]


def change_at_random(
    labels: Labels, classes: int, rate: float, random: np.random.Generator
) -> Labels:
    """Some labels, drawn at random, become another class, each as likely."""
    changed = labels.copy()
    wrong = random.choice(len(labels), round(rate * len(labels)), replace=False)
    changed[wrong] = (labels[wrong] + random.integers(1, classes, len(wrong))) % classes
    return changed


def symmetric(truth: Truth, rate: float, random: np.random.Generator) -> Labels:
    """Wrong labels that know nothing of images or classes."""
    return change_at_random(truth.labels, len(truth.successor), rate, random)


def class_dependent(truth: Truth, rate: float, random: np.random.Generator) -> Labels:
    """Some labels, drawn at random, become the class that theirs is confused with."""
    labels = truth.labels.copy()
    wrong = random.choice(len(labels), round(rate * len(labels)), replace=False)
    labels[wrong] = truth.successor[labels[wrong]]
    return labels


def instance_dependent(truth: Truth, rate: float, random: np.random.Generator) -> Labels:
    """The pixels decide how likely a label is to be wrong, and what it becomes.

    After part-dependent noise of Xia et al. (2020): a random projection for every class maps the
    pixels to the other classes, and the rate of an image is drawn around the mean one.
    """
    labels, classes = truth.labels.copy(), len(truth.successor)
    rates = np.clip(random.normal(rate, RATE_SPREAD, len(labels)), 1e-3, 1)
    wrong = random.choice(
        len(labels), round(rate * len(labels)), replace=False, p=rates / rates.sum()
    )
    projections = random.standard_normal((classes, truth.pixels.shape[1], classes))
    scale = np.sqrt(truth.pixels.shape[1])
    for row in wrong:
        own = labels[row]
        preference = truth.pixels[row] @ projections[own] / scale
        preference[own] = -np.inf
        chances = np.exp(preference - preference.max())
        labels[row] = random.choice(classes, p=chances / chances.sum())
    return labels


NOISE: dict[str, Callable[[Truth, float, np.random.Generator], Labels]] = {
    "symmetric": symmetric,
    "class-dependent": class_dependent,
    "instance-dependent": instance_dependent,
}


def pixels_of(images: list[Image.Image]) -> NDArray[np.float64]:
    """Standardised pixels of small pictures. Shape (samples, values)."""
    size = (THUMBNAIL, THUMBNAIL)
    small = [np.asarray(image.convert("RGB").resize(size), np.float64).ravel() for image in images]
    values = np.stack(small)
    return (values - values.mean(axis=0)) / values.std(axis=0)
