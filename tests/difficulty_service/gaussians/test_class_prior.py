"""Shares of classes are drawn towards equal ones as far as the labels call for it."""

import math

import pytest
import torch

from difficulty_service.gaussians.label_noise import PSEUDO_COUNTS, log_class_prior


def naive_prior(counts: list[int]) -> list[float]:
    """The likeliest shares by predicting each label from a list of all the others."""
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    classes, best, found = len(counts), -math.inf, [0.0]
    for added in PSEUDO_COUNTS:
        weight = min(added, 1e12)

        def share(label: int, known: list[int], weight: float = weight) -> float:
            return (known.count(label) + weight) / (len(known) + classes * weight)

        total = sum(
            math.log(share(label, labels[:place] + labels[place + 1 :]))
            for place, label in enumerate(labels)
        )
        if total > best + 1e-9:
            best, found = total, [share(label, labels) for label in range(classes)]
    return found


@pytest.mark.parametrize(
    "counts", [[6, 4, 5, 5], [30, 2, 9], [2, 2, 2, 12], [40, 60, 50, 10, 55]], ids=str
)
def test_the_prior_is_the_likeliest_by_predicting_each_label_from_the_others(
    counts: list[int],
) -> None:
    prior = log_class_prior(torch.tensor(counts)).exp()

    assert prior.tolist() == pytest.approx(naive_prior(counts), rel=1e-9)
    assert float(prior.sum()) == pytest.approx(1)


def test_classes_that_differ_by_chance_are_equally_probable() -> None:
    prior = log_class_prior(torch.tensor([6, 4, 5, 5, 5])).exp()

    assert prior.tolist() == pytest.approx([0.2] * 5, rel=1e-12)


def test_classes_that_surely_differ_keep_their_shares() -> None:
    counts = torch.tensor([50_000, 5_000, 500])

    shares = counts.double() / counts.sum()
    torch.testing.assert_close(log_class_prior(counts).exp(), shares, rtol=0.01, atol=0)


def test_a_single_class_is_certain() -> None:
    assert log_class_prior(torch.tensor([7])).tolist() == [0]


@pytest.mark.parametrize("count", [0, 1])
def test_a_class_that_cannot_be_compared_is_impossible_and_changes_nothing(count: int) -> None:
    prior = log_class_prior(torch.tensor([count, 30, 2, 0, 9])).exp().tolist()

    others = log_class_prior(torch.tensor([30, 2, 9])).exp().tolist()
    assert prior == [0, *others[:2], 0, others[2]]


def test_classes_of_one_sample_each_are_equally_probable() -> None:
    prior = log_class_prior(torch.tensor([1, 0, 1, 1])).exp().tolist()

    assert prior == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
