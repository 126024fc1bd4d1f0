"""Label noise and what follows from it, against loops over samples and classes."""

import math

import pytest
import torch
from torch import Tensor

from difficulty_service.gaussians.label_noise import (
    add_label_sums,
    gain_of_noise,
    judge_labels,
    log_noise,
)
from difficulty_service.gaussians.products import Workspace

SAMPLES, CLASSES = 30, 4


@pytest.fixture
def log_joint() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(SAMPLES, CLASSES, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels() -> Tensor:
    return torch.arange(SAMPLES) % CLASSES


def label_sums(log_joint: Tensor, labels: Tensor, parts: int = 1) -> Tensor:
    total = torch.zeros(CLASSES, CLASSES, dtype=torch.float64)
    for rows in torch.arange(len(labels)).chunk(parts):
        add_label_sums(log_joint[rows], labels[rows], total)
    return total


def naive_noise(log_joint: Tensor, labels: Tensor, scale: float = 1) -> list[list[float]]:
    """Probability of each given label, the second index, where a class is right, the first."""
    rows = []
    for right in range(CLASSES):
        weights = [1.0] * CLASSES
        for row, label in zip(log_joint.tolist(), labels.tolist(), strict=True):
            weights[label] += scale * math.exp(row[right]) / sum(map(math.exp, row))
        rows.append([weight / sum(weights) for weight in weights])
    return rows


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_noise_counts_which_labels_samples_of_a_class_have(
    log_joint: Tensor, labels: Tensor, scale: float
) -> None:
    found = log_noise(scale * label_sums(log_joint, labels)).exp()

    expected = torch.tensor(naive_noise(log_joint, labels, scale), dtype=torch.float64).T
    torch.testing.assert_close(found, expected)


def test_sums_of_parts_add_up_to_those_of_the_whole(log_joint: Tensor, labels: Tensor) -> None:
    torch.testing.assert_close(label_sums(log_joint, labels, 3), label_sums(log_joint, labels))


def test_suspicion_weighs_classes_by_the_noise(log_joint: Tensor, labels: Tensor) -> None:
    noise = naive_noise(log_joint, labels)
    logs = log_noise(label_sums(log_joint, labels))

    verdict = judge_labels(log_joint.clone(), labels, logs, Workspace())

    for sample, label in enumerate(labels.tolist()):
        weights = [
            math.exp(value) * noise[right][label]
            for right, value in enumerate(log_joint[sample].tolist())
        ]
        own = weights[label]
        weights[label] = 0.0
        assert verdict.suspicion[sample] == pytest.approx(math.log(sum(weights) / own))
        assert int(verdict.suspected[sample]) == weights.index(max(weights))


def test_odds_without_noise_take_the_classes_as_they_are(log_joint: Tensor, labels: Tensor) -> None:
    probability = log_joint.softmax(dim=1).gather(1, labels[:, None])[:, 0]

    torch.testing.assert_close(
        judge_labels(log_joint, labels, None, Workspace()).suspicion,
        (1 / probability - 1).log(),
        rtol=1e-9,
        atol=1e-9,
    )


def test_a_sample_without_a_density_of_its_class_is_not_judged(
    log_joint: Tensor, labels: Tensor
) -> None:
    log_joint[0, labels[0]] = torch.nan
    rest = label_sums(log_joint[1:], labels[1:])

    assert torch.equal(label_sums(log_joint, labels), rest)
    verdict = judge_labels(log_joint, labels, log_noise(rest), Workspace())
    assert verdict.suspicion.isnan().nonzero().flatten().tolist() == [0]


def test_with_a_single_class_there_are_no_odds() -> None:
    joint = torch.zeros(5, 1, dtype=torch.float64)

    assert (
        judge_labels(joint, torch.zeros(5, dtype=torch.int64), None, Workspace())
        .suspicion.isnan()
        .all()
    )


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_the_gain_of_noise_is_that_of_labels_whose_sample_the_noise_has_not_seen(
    log_joint: Tensor, labels: Tensor, scale: float
) -> None:
    sums = scale * label_sums(log_joint[:20], labels[:20])
    counted = torch.where(torch.arange(SAMPLES) < 20, scale, 0.0)

    gains = gain_of_noise(log_joint, labels, sums, counted)

    for sample, label in enumerate(labels.tolist()):
        others = [other for other in range(20) if other != sample]
        noise = naive_noise(log_joint[others], labels[others], scale)
        likely = log_joint[sample].softmax(dim=0).tolist()
        noisy = sum(likely[right] * noise[right][label] for right in range(CLASSES))
        assert gains[sample] == pytest.approx(math.log(noisy / likely[label]))
