"""The score for which images people disagree on."""

from collections.abc import Collection

import numpy as np
import pytest
import torch
from torch import Tensor

import difficulty_service as ds
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.row_sample import choose_samples
from difficulty_service.scorers import ScorerInput, alike, ambiguity, linear_probe
from difficulty_service.scorers.alike import mean_of_alike
from difficulty_service.scorers.ambiguity import score_samples
from difficulty_service.scorers.linear_probe import logits_left_out
from difficulty_service.scorers.suspicion import PosteriorOptions, fit_posteriors

NUM_CLASSES = 4


def blobs(count: int = 200, distance: float = 2.0) -> tuple[Tensor, Tensor]:
    """Features of four classes in 8 dimensions, and the labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % NUM_CLASSES
    return distance * torch.eye(8)[labels] + torch.randn(count, 8, generator=generator), labels


def scores_of(features: Tensor, labels: Tensor, num_classes: int = NUM_CLASSES) -> Tensor:
    """The column of some samples."""
    return score_samples(ScorerInput(features, labels, num_classes, seed=0))


def likeliest(logits: Tensor, labels: Tensor) -> Tensor:
    """The logits at the best of many scales for the labels."""
    scales = torch.logspace(-2, 2, 4001, dtype=torch.float64)
    losses = [torch.nn.functional.cross_entropy(each * logits, labels) for each in scales]
    return scales[int(torch.stack(losses).argmin())] * logits


def naive_mean_of_alike(
    features: Tensor, labels: Tensor, values: Tensor, compared: Collection[int] | None = None
) -> Tensor:
    """The mean over the 50 samples of the label with the largest cosine, sample by sample."""
    rows = (features - features.mean(dim=0)).double()
    cosines = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=2)
    means = []
    for own in range(len(rows)):
        others = [
            other
            for other in range(len(rows))
            if other != own
            and labels[other] == labels[own]
            and (compared is None or other in compared)
        ]
        others.sort(key=cosines[own].neg().__getitem__)
        means.append(values[others[:50]].mean() if others else values[own])
    return torch.stack(means)


def test_the_mean_of_alike_samples_is_that_of_the_nearest_of_the_same_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, labels = blobs(300)
    labels[:3] = torch.tensor([7, 8, 8])  # a class of one, and one of two
    values = torch.randn(300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(alike, "BLOCK_ROWS", 32)

    means = mean_of_alike(features, labels, values, seed=0)

    torch.testing.assert_close(means, naive_mean_of_alike(features, labels, values))
    assert means[0] == values[0]
    assert (means[1], means[2]) == (values[2], values[1])


def test_in_a_large_class_some_samples_are_compared_with_that_the_seed_chooses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, labels = blobs(240)
    values = torch.randn(240, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(alike, "MOST_COMPARED", 55)

    means = mean_of_alike(features, labels, values, seed=3)

    compared = {
        row
        for label in range(NUM_CLASSES)
        for row in (labels == label).nonzero()[choose_samples(60, 55, 3), 0].tolist()
    }
    expected = naive_mean_of_alike(features, labels, values, compared)
    torch.testing.assert_close(means, expected)


@pytest.mark.slow
def test_the_score_is_the_log_odds_of_both_classifiers_and_those_of_alike_samples() -> None:
    features, labels = blobs()
    options = PosteriorOptions(("agree",), NUM_CLASSES)
    posteriors = fit_posteriors(TensorBatches(features, labels), options)
    agree = posteriors.log_joint_of_agree(features, labels).double()
    probe = logits_left_out(features, labels, NUM_CLASSES, torch.arange(200)).double()

    scores = scores_of(features, labels)

    weights = likeliest(agree + probe, labels).exp()
    of_label = weights.gather(1, labels[:, None])[:, 0]
    alone = torch.log((weights.sum(dim=1) - of_label) / of_label)
    expected = (2 * alone + naive_mean_of_alike(features, labels, alone)) / 3
    torch.testing.assert_close(scores, expected, atol=0.02, rtol=0)


def test_agree_alone_is_the_column_agree() -> None:
    features, labels = blobs()
    posteriors = fit_posteriors(
        TensorBatches(features, labels), PosteriorOptions(("agree",), NUM_CLASSES)
    )

    joint = posteriors.log_joint_of_agree(features, labels)

    weights = joint.double().softmax(dim=1).gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(
        ((1 - weights) / weights).log(),
        posteriors.columns(features, labels)["agree"],
        atol=1e-4,
        rtol=1e-4,
    )


@pytest.mark.slow
def test_a_wrong_label_scores_higher_than_the_right_one() -> None:
    features, labels = blobs(distance=5.0)
    wrong = labels.clone()
    wrong[:5] = (labels[:5] + 1) % NUM_CLASSES

    right_scores, wrong_scores = scores_of(features, labels), scores_of(features, wrong)

    assert (wrong_scores[:5] > 0).all()
    assert (right_scores[:5] < 0).all()


@pytest.mark.long
@pytest.mark.parametrize("num_classes", [2, 1000])
def test_two_classes_and_a_thousand_have_scores(
    num_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_probe, "MOST_STEPS", 20)  # of seconds each with so many classes
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3 * num_classes) % num_classes
    centres = 3 * torch.randn(num_classes, 12, generator=generator)
    features = centres[labels] + torch.randn(len(labels), 12, generator=generator)

    scores = scores_of(features, labels, num_classes)

    assert scores.dtype == torch.float64
    assert scores.isfinite().all()
    assert (scores < 0).double().mean() > 0.5


def test_the_only_sample_of_a_class_has_no_score() -> None:
    features, labels = blobs()
    labels[7] = NUM_CLASSES + 1  # no sample has the label before it

    scores = scores_of(features, labels, NUM_CLASSES + 3)

    assert scores.isnan().nonzero().flatten().tolist() == [7]


def test_without_two_classes_of_several_samples_there_are_no_scores() -> None:
    features, _ = blobs(8)

    assert scores_of(features, torch.zeros(8, dtype=torch.int64)).isnan().all()
    assert scores_of(features, torch.arange(8), 8).isnan().all()


def test_a_few_samples_at_a_time_have_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = scores_of(*blobs())

    monkeypatch.setattr(ambiguity, "BLOCK_ROWS", 37)

    torch.testing.assert_close(scores_of(*blobs()), at_once)


def test_a_score_file_has_the_column() -> None:
    features, labels = blobs()

    scores = ds.score(features.numpy(), labels.numpy(), scorers=("rmd", "ambiguity"))

    found = scores["ambiguity"].to_numpy()
    np.testing.assert_array_equal(found, scores_of(features, labels).numpy())
