"""Held-out samples and label noise."""

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import DatasetError
from trainer.data.splits import hold_out, inject_label_noise


@pytest.fixture
def labels() -> Tensor:
    """Classes of 1, 7, 40 and 152 samples, mixed."""
    counts = torch.tensor([1, 7, 40, 152])
    shuffled = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    return torch.arange(4).repeat_interleave(counts)[shuffled]


def test_every_sample_is_either_trained_on_or_held_out(labels: Tensor) -> None:
    kept, held_out = hold_out(labels, 0.25, seed=0)

    assert torch.equal(torch.cat((kept, held_out)).sort().values, torch.arange(200))
    assert torch.equal(kept, kept.sort().values)
    assert torch.equal(held_out, held_out.sort().values)


def test_the_held_out_fraction_of_every_class_is_exact_to_within_one_sample(labels: Tensor) -> None:
    _, held_out = hold_out(labels, 0.25, seed=0)

    counts = labels[held_out].bincount(minlength=4)
    assert len(held_out) == 50
    assert (counts - 0.25 * labels.bincount()).abs().max() <= 1


def test_the_held_out_fraction_of_many_small_classes_is_exact_in_total() -> None:
    labels = torch.arange(1000).repeat_interleave(4)

    _, held_out = hold_out(labels, 0.1, seed=0)

    assert len(held_out) == 400


@pytest.mark.parametrize("fraction", [0.5, 0.99])
def test_one_sample_of_each_class_stays(labels: Tensor, fraction: float) -> None:
    kept, _ = hold_out(labels, fraction, seed=0)

    assert (labels[kept].bincount(minlength=4) >= 1).all()


def test_the_split_follows_the_seed(labels: Tensor) -> None:
    again, same, other = (hold_out(labels, 0.25, seed)[1] for seed in (3, 3, 4))

    assert torch.equal(again, same)
    assert not torch.equal(again, other)


def test_a_fraction_of_zero_holds_out_nothing(labels: Tensor) -> None:
    kept, held_out = hold_out(labels, 0.0, seed=0)

    assert torch.equal(kept, torch.arange(200))
    assert not len(held_out)


def test_a_fraction_of_less_than_one_sample_is_refused() -> None:
    with pytest.raises(DatasetError, match=r"0\.1 of 4 samples in 2 classes holds out none"):
        hold_out(torch.tensor([0, 0, 1, 1]), 0.1, seed=0)


def test_noise_changes_exactly_its_fraction_of_labels_to_other_classes(labels: Tensor) -> None:
    noisy = inject_label_noise(labels, 0.33, num_classes=4, seed=0)

    assert (noisy != labels).sum() == 66
    assert noisy.min() >= 0
    assert noisy.max() <= 3
    assert noisy.dtype == torch.int64


def test_noise_does_not_change_its_argument(labels: Tensor) -> None:
    before = labels.clone()

    inject_label_noise(labels, 0.5, num_classes=4, seed=0)

    assert torch.equal(labels, before)


def test_noise_makes_every_other_class_equally_likely() -> None:
    noisy = inject_label_noise(torch.full((40_000,), 2), 0.75, num_classes=4, seed=0)

    counts = noisy.bincount(minlength=4)

    assert counts[2] == 10_000
    assert ((counts[[0, 1, 3]] - 10_000).abs() < 400).all()


def test_noise_follows_the_seed(labels: Tensor) -> None:
    again, same, other = (inject_label_noise(labels, 0.5, 4, seed) for seed in (3, 3, 4))

    assert torch.equal(again, same)
    assert not torch.equal(again, other)


def test_noise_without_another_class_is_refused() -> None:
    with pytest.raises(DatasetError, match="two classes"):
        inject_label_noise(torch.zeros(10, dtype=torch.int64), 0.5, num_classes=1, seed=0)
