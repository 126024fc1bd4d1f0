"""Labels that a benchmark of the encoder of photographs makes wrong."""

import numpy as np

from benchmarks.photo_crops import FEWEST, planted


def test_wrong_labels_are_planted_among_classes_of_enough_images() -> None:
    labels = np.repeat([0, 1, 2, 3], [40, FEWEST - 1, 30, 50])

    places, given, wrong = planted(labels, 60, np.random.default_rng(0))

    assert places.tolist() == list(range(len(labels)))
    assert wrong.sum() == 60
    assert ((given != labels) == wrong).all()
    assert set(given[wrong].tolist()) == set(labels[wrong].tolist()) == {0, 2, 3}
