"""Labels that are wrong on purpose: as many as asked for, and in the way that is named."""

import numpy as np
import pytest

from benchmarks.evidence.noise import NOISE, Truth

CLASSES = 5


@pytest.fixture
def truth() -> Truth:
    """A thousand samples whose first pixel tells nothing about their class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, CLASSES, 1000)
    successor = np.array([1, 0, 3, 4, 2])
    return Truth(labels, successor, generator.standard_normal((1000, 12)))


@pytest.mark.parametrize("rate", [0.02, 0.4])
@pytest.mark.parametrize("kind", NOISE)
def test_as_many_labels_are_wrong_as_asked_for(truth: Truth, kind: str, rate: float) -> None:
    given = NOISE[kind](truth, rate, np.random.default_rng(1))

    assert (given != truth.labels).mean() == rate
    assert set(np.unique(given)) <= set(range(CLASSES))


def test_class_dependent_noise_takes_the_confused_class_only(truth: Truth) -> None:
    given = NOISE["class-dependent"](truth, 0.3, np.random.default_rng(1))

    wrong = given != truth.labels
    np.testing.assert_array_equal(given[wrong], truth.successor[truth.labels[wrong]])


def test_symmetric_noise_takes_every_other_class_as_often(truth: Truth) -> None:
    given = NOISE["symmetric"](truth, 1.0, np.random.default_rng(1))

    steps = np.bincount((given - truth.labels) % CLASSES, minlength=CLASSES)
    assert steps[0] == 0
    assert steps[1:].min() > 200


def test_similar_images_of_a_class_get_the_same_wrong_label_in_instance_dependent_noise() -> None:
    pixels = np.repeat(5 * np.random.default_rng(0).standard_normal((2, 50)), 200, axis=0)
    truth = Truth(np.zeros(400, np.int64), np.arange(CLASSES), pixels)

    given = NOISE["instance-dependent"](truth, 1.0, np.random.default_rng(1))

    shares = [np.bincount(half, minlength=CLASSES).max() / 200 for half in np.split(given, 2)]
    assert min(shares) > 0.5
