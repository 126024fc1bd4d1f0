"""Correctness ranking against a batch of the published training loop, and its history."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.correctness_ranking import Confidence, CorrectnessRanking, ranking_term
from trainer.training.sampling import DifficultySampler

DATA = Path(__file__).resolve().parents[2] / "data"
IDS = [f"image-{row}" for row in range(120)]
CASES = [
    ("softmax_e1", "max_probability", 0),
    ("softmax_e5", "max_probability", 4),
    ("entropy_e5", "entropy", 4),
    ("margin_e5", "margin", 4),
]


@pytest.mark.parametrize(("case", "confidence", "epoch"), CASES)
def test_a_batch_of_the_training_loop_matches_the_reference(
    case: str, confidence: Confidence, epoch: int
) -> None:
    prefix = f"crl_{case}__"
    record = {
        key.removeprefix(prefix): value
        for key, value in np.load(DATA / "losses_crl.npz").items()
        if key.startswith(prefix)
    }
    logits = torch.tensor(record["logits"], requires_grad=True)
    targets = torch.tensor(record["labels"])
    loss = CorrectnessRanking(confidence=confidence)
    counts = torch.tensor(record["correctness_before"]).long()
    loss.load_state_dict({"sample_ids": IDS, "counts": counts, "most": 1})

    loss.before_epoch(epoch, 300)
    loss.before_batch([IDS[row] for row in record["idx"]])
    losses = loss(logits, targets)
    loss.after_batch(logits.argmax(dim=-1) == targets)

    # The reference keeps correctness and margins in float32.
    (gradient,) = torch.autograd.grad(losses.mean(), logits)
    assert losses.mean().item() == pytest.approx(record["total"], rel=1e-6)
    np.testing.assert_allclose(gradient.numpy(), record["grad_total"], rtol=1e-6, atol=1e-9)
    plain = F.cross_entropy(logits, targets)
    assert (losses.mean() - plain).item() == pytest.approx(record["rank"], rel=1e-6, abs=1e-12)
    np.testing.assert_array_equal(loss.state_dict()["counts"], record["correctness_after"])


@pytest.mark.parametrize("confidence", ["max_probability", "entropy", "margin"])
@pytest.mark.parametrize("counts", [[0, 5], [5, 5], [0, 0]])
def test_extreme_logits_stay_finite(
    check_extremes: Callable[..., None], confidence: Confidence, counts: list[int]
) -> None:
    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        ranking = CorrectnessRanking(confidence=confidence)
        all_counts = torch.tensor(counts).repeat(60)
        ranking.load_state_dict({"sample_ids": IDS, "counts": all_counts, "most": 5})
        ranking.before_batch(IDS[: len(targets)])
        return ranking(logits, targets)

    check_extremes(loss)


def test_where_all_samples_were_always_right_it_is_plain_cross_entropy() -> None:
    logits, targets = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    loss = CorrectnessRanking()
    loss.before_training(IDS[:4])
    loss.before_batch(IDS[:4])
    loss.after_batch(torch.ones(4, dtype=torch.bool))

    loss.before_epoch(1, 10)

    expected = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(loss(logits, targets), expected)


def test_only_pairs_in_the_wrong_order_or_too_close_have_a_gradient() -> None:
    correctness = torch.tensor([1.0, 0.0])

    apart = ranking_term(torch.tensor([1.0, 0.0]), correctness)
    wrong = ranking_term(torch.tensor([0.2, 0.5]), correctness)

    torch.testing.assert_close(apart, torch.zeros(2))
    torch.testing.assert_close(wrong, torch.full((2,), 1.3))


def test_correctness_is_normalised_by_the_smallest_count_and_the_finished_epochs() -> None:
    logits, targets = torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)
    loss = CorrectnessRanking()
    counts = torch.tensor([2, 3, 4])
    loss.load_state_dict({"sample_ids": IDS[:3], "counts": counts, "most": 4})
    loss.before_batch(IDS[:3])

    term = loss(logits, targets) - F.cross_entropy(logits, targets, reduction="none")

    # Equal confidences: what is left are the differences of 0, 1/2 and 1 to their neighbours.
    torch.testing.assert_close(term, torch.tensor([0.5, 0.5, 1.0]))


def test_a_sample_seen_twice_in_the_first_epoch_counts_as_always_right() -> None:
    logits, targets = torch.zeros(2, 2), torch.zeros(2, dtype=torch.long)
    loss = CorrectnessRanking()
    loss.before_training(IDS[:2])
    loss.before_epoch(0, 10)
    loss.before_batch(IDS[:2])
    loss.after_batch(torch.tensor([True, False]))

    term = loss(logits, targets) - F.cross_entropy(logits, targets, reduction="none")

    torch.testing.assert_close(term, torch.ones(2))


def test_the_history_follows_ids_through_any_order_of_batches() -> None:
    loss = CorrectnessRanking()
    loss.before_training(["a", "b", "c"])

    loss.before_batch(["c", "a"])
    loss.after_batch(torch.tensor([True, False]))
    loss.before_epoch(1, 2)
    loss.before_batch(["b", "c"])
    loss.after_batch(torch.tensor([True, True]))

    assert loss.state_dict()["counts"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("ends_within", [False, True])
def test_a_sample_counts_once_an_epoch_by_its_first_prediction(
    ends_within: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(6, (3, 4, 8), generator=generator)  # epochs, batches, samples
    right = torch.rand(draws.shape, generator=generator) < 0.5
    expected = [0] * 6
    for epoch_draws, epoch_right in zip(draws.flatten(1), right.flatten(1), strict=True):
        for sample in set(epoch_draws.tolist()):
            first = epoch_draws.tolist().index(sample)
            expected[sample] += int(epoch_right[first])
    loss = CorrectnessRanking()
    loss.before_training(IDS[:6])

    for epoch in range(3):
        loss.before_epoch(epoch, 3)
        for batch in range(4):
            if ends_within:
                state, loss = loss.state_dict(), CorrectnessRanking()
                loss.load_state_dict(state)
                loss.before_epoch(epoch, 3)
            loss.before_batch([IDS[sample] for sample in draws[epoch, batch].tolist()])
            loss.after_batch(right[epoch, batch])

    assert loss.state_dict()["counts"].tolist() == expected


@pytest.mark.parametrize("order", ["easy_first", "hard_first"])
def test_correctness_is_never_more_than_one_as_an_epoch_begins(
    order: Literal["easy_first", "hard_first"],
) -> None:
    sampler = DifficultySampler(torch.arange(100.0), 10, order, epochs=10, start=0.1)
    loss = CorrectnessRanking()
    loss.before_training(IDS[:100])

    for epoch in range(10):
        loss.before_epoch(epoch, 10)
        loss.before_batch(IDS[:100])
        assert loss._correctness(torch.device("cpu")).max() <= 1
        for batch in sampler:
            loss.before_batch([IDS[sample] for sample in batch])
            loss.after_batch(torch.ones(len(batch)))


def test_a_sample_outside_the_training_set_is_named() -> None:
    loss = CorrectnessRanking()
    loss.before_training(["a"])

    with pytest.raises(ValueError, match="'z'"):
        loss.before_batch(["a", "z"])


def test_a_batch_without_before_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="before_batch"):
        CorrectnessRanking()(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))


def test_an_unknown_confidence_is_refused_by_name() -> None:
    confidence: Any = "energy"
    loss = CorrectnessRanking(confidence=confidence)
    loss.before_training(["a"])
    loss.before_batch(["a"])

    with pytest.raises(ValueError, match="'energy'"):
        loss(torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
