"""The peers that are written here: their formulas, and that what they choose is held out."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from benchmarks.evidence import probes
from benchmarks.evidence.methods import PEERS
from benchmarks.evidence.peers import nearest, neighbour_votes
from benchmarks.evidence.samples import Samples

CLASSES, PER_CLASS, DIM = 4, 60, 8
BLUNT = ("forgetting", "cleanlab confidence_weighted_entropy")
"""A linear probe hardly forgets anything; where it is sure, an entropy tells little."""


@pytest.fixture(scope="module")
def blobs() -> tuple[Samples, np.ndarray]:
    """Four classes that hardly overlap; every tenth label is moved to the next class."""
    generator = np.random.default_rng(0)
    truth = np.tile(np.arange(CLASSES), PER_CLASS)
    features = generator.standard_normal((len(truth), DIM)) + 6 * np.eye(CLASSES, DIM)[truth]
    wrong = np.zeros(len(truth), dtype=bool)
    wrong[::10] = True
    given = np.where(wrong, (truth + 1) % CLASSES, truth)
    return Samples(features.astype(np.float32), given, CLASSES), wrong


@pytest.mark.parametrize("name", ["cleanlab", "training", "neighbours", "lda"])
def test_a_peer_finds_labels_that_were_moved(blobs: tuple[Samples, np.ndarray], name: str) -> None:
    samples, wrong = blobs

    verdict = PEERS[name](samples)

    for column, scores in verdict.scores.items():
        if column not in BLUNT:
            assert wrong[np.argsort(-scores)[: wrong.sum()]].mean() > 0.8, column
    for flagged in verdict.flagged.values():
        assert flagged[wrong].mean() > 0.5
        assert flagged[~wrong].mean() < 0.1


def test_predictions_of_a_sample_come_from_a_probe_that_has_not_seen_it() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(100, 300, generator=generator)
    labels = torch.randint(0, 2, (100,), generator=generator)

    probabilities, _ = probes.cross_validated(F.pad(noise, (0, 1), value=1.0), labels, 2)

    # A probe of 300 dimensions fits 100 samples perfectly where it sees them.
    assert (probabilities.argmax(dim=1) == labels).float().mean() < 0.7


def test_margins_and_errors_are_those_of_the_logits_after_each_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "EPOCHS", 1)
    monkeypatch.setattr(probes, "BATCH", 1000)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 5, generator=generator)
    labels = torch.randint(0, 3, (30,), generator=generator)

    run = probes.train(rows, labels, 3, rate=0.5)

    layer = -0.5 * rows.T @ (1 / 3 - F.one_hot(labels, 3)) / 30  # one step of gradient descent
    logits = rows @ layer
    for row, label in enumerate(labels):
        others = [value for place, value in enumerate(logits[row]) if place != label]
        torch.testing.assert_close(run.margins[row], logits[row, label] - max(others))
    errors = logits.softmax(dim=1) - F.one_hot(labels, 3)
    torch.testing.assert_close(run.error_norms[0], errors.norm(dim=1))


def test_samples_held_out_are_not_trained_on() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 5, generator=generator)
    labels = torch.randint(0, 3, (50,), generator=generator)
    held_out = torch.arange(10)
    changed = labels.clone()
    changed[held_out] = (labels[held_out] + 1) % 3

    run, other = (probes.train(rows, each, 3, 0.1, held_out) for each in (labels, changed))

    torch.testing.assert_close(run.margins[10:], other.margins[10:])


def test_smaller_rates_are_tried_while_the_smallest_is_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "RATES", (30.0, 100.0))
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 20, generator=generator)
    labels = (rows[:, 0] + torch.randn(400, generator=generator) > 0).long()

    rate, _ = probes.best_training(rows, labels, 2)

    assert rate < 30


def test_neighbours_are_the_others_with_the_largest_cosines() -> None:
    features = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)

    cosines, places = nearest(features, 3)

    centred = features - features.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    similar = centred @ centred.T
    np.fill_diagonal(similar, -np.inf)
    expected = np.argsort(-similar, axis=1)[:, :3]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_allclose(cosines, np.take_along_axis(similar, expected, 1), atol=1e-6)


def test_the_number_of_neighbours_is_the_one_that_predicts_labels_best(
    blobs: tuple[Samples, np.ndarray],
) -> None:
    samples, _ = blobs

    verdict = neighbour_votes(samples)

    # With 240 samples of four classes, a hundred neighbours cross every border.
    assert verdict.choices["neighbours"] in (20, 50)
