"""The consensus of several labels beside peers, on made-up images."""

import numpy as np
import pytest

from benchmarks.evidence.annotators import (
    Consensus,
    Voted,
    crowdlab,
    measure,
    of_columns,
    our_features,
    ours,
    some,
    vote,
)

IMAGES, RATES = 300, (0.1, 0.2, 0.45)


@pytest.fixture(scope="module")
def voted() -> Voted:
    """Three annotators who err by chance, of images of ten classes."""
    random = np.random.default_rng(0)
    right = np.arange(IMAGES) % 10
    features = random.standard_normal((IMAGES, 20)) + 3 * np.eye(10, 20)[right]
    wrong = random.random((IMAGES, 3)) < np.array(RATES)
    votes = (right[:, None] + wrong * random.integers(1, 10, (IMAGES, 3))) % 10
    return Voted(features.astype(np.float32), right, of_columns(votes), np.array(RATES))


def test_our_consensus_is_right_more_often_than_a_vote(voted: Voted) -> None:
    measured, by_vote = measure(voted, ours(voted)), measure(voted, vote(voted))

    assert measured["accuracy"] > by_vote["accuracy"]
    assert measured["minus_majority"] == pytest.approx(measured["accuracy"] - by_vote["accuracy"])
    assert measured["annotators_spearman"] == pytest.approx(1)


def test_verified_images_are_not_what_is_measured(voted: Voted) -> None:
    found = ours(voted, verified=100)

    assert found.judged is not None
    assert found.judged.sum() == IMAGES - 100


def test_crowdlab_takes_our_probabilities(voted: Voted) -> None:
    measured = measure(voted, crowdlab(voted, our_features))

    assert measured["accuracy"] > 0.9
    assert measured["annotators_spearman"] == pytest.approx(1)


def test_the_log_loss_is_that_of_the_consensus_being_right() -> None:
    voted = Voted(
        np.empty((4, 0), np.float32),
        np.array([0, 1, 2, 3]),
        of_columns(np.array([[0], [1], [2], [4]])),
        np.empty(0),
    )
    found = Consensus(np.array([0, 1, 2, 4]), np.array([0.9, 0.8, 0.99, 0.7]))

    measured = measure(voted, found)

    assert measured["accuracy"] == 0.75
    assert measured["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.99, 0.3]).mean())
    assert measured["auroc"] == 1
    assert measured["sure"] == 0.25
    assert measured["sure_right"] == 1


def test_a_draw_keeps_all_labels_of_its_images(voted: Voted) -> None:
    fewer = some(voted, 50, seed=1)

    assert len(fewer.right) == 50
    assert len(fewer.triples) == 150
    agreeing = fewer.triples[:, 2] == fewer.right[fewer.triples[:, 0]]
    assert agreeing.mean() > 0.6
