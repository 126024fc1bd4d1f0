"""AdaFocal: its gammas by hand, its whole trajectory and its loss against the reference."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.losses.adafocal import (
    AdaFocal,
    GammaRule,
    ProbabilityBins,
    binned_focal,
    describe_bins,
    first_bins,
    next_gammas,
    update_bins,
)
from trainer.losses.focal import focal

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="module")
def record() -> dict[str, NDArray[np.float64]]:
    return dict(np.load(DATA / "losses_adafocal.npz"))


@pytest.fixture
def state(record: dict[str, NDArray[np.float64]]) -> ProbabilityBins:
    """Bins with gammas of both signs."""
    gammas, lower, upper = (
        torch.tensor(record[f"ada_state_{name}"]) for name in ("gamma", "lower", "upper")
    )
    return ProbabilityBins(gammas, lower, upper)


@pytest.mark.parametrize(
    ("gamma", "gap", "expected"),
    [
        (1, 0.5, 1.6487212707001282),
        (1, -0.5, 0.6065306597126334),
        (0.2, -0.01, -0.2),
        (0.2, 0.01, 0.2020100334168336),
        (-0.2, 0.01, 0.2),
        (-0.2, -0.01, -0.2020100334168336),
        (-1, 0.5, -0.6065306597126334),
        (-1, -0.5, -1.6487212707001282),
        (19, 0.9, 20.0),
        (-1.9, -0.9, -2.0),
        (0.0, 0.3, 0.2),
        (0.21, -0.1, -0.2),
        (-0.21, 0.1, 0.2),
    ],
)
def test_a_gamma_grows_shrinks_changes_sign_and_stops_at_its_limits(
    gamma: float, gap: float, expected: float
) -> None:
    gammas = torch.tensor([gamma], dtype=torch.float64)

    moved = next_gammas(gammas, torch.tensor([gap], dtype=torch.float64), GammaRule())

    assert moved.item() == pytest.approx(expected, rel=1e-12)


def test_the_whole_trajectory_follows_the_reference(
    record: dict[str, NDArray[np.float64]],
) -> None:
    loss = AdaFocal()

    for step, (confidence, correct) in enumerate(
        zip(record["val_conf"], record["val_correct"], strict=True)
    ):
        loss.after_epoch(torch.tensor(confidence), torch.tensor(correct))

        # The reference measures gaps in float32.
        for ours, name in [("gammas", "gamma_after"), ("lower", "lower"), ("upper", "upper")]:
            np.testing.assert_allclose(
                getattr(loss.bins, ours).numpy(), record[name][step], rtol=1e-6, atol=1e-7
            )


def test_every_probability_has_the_gamma_of_the_reference(
    record: dict[str, NDArray[np.float64]],
) -> None:
    gammas, lower, upper = torch.tensor(record["probe_state"])
    bins = ProbabilityBins(gammas, lower, upper)

    gammas = bins.gammas_of(torch.tensor(record["probe_pt"]))

    np.testing.assert_array_equal(gammas.numpy(), record["probe_gamma"])


def test_a_probability_that_is_not_a_number_belongs_to_the_last_bin(
    state: ProbabilityBins,
) -> None:
    gammas = state.gammas_of(torch.tensor([torch.nan], dtype=torch.float64))

    assert gammas.item() == state.gammas[-1].item()


def test_values_and_gradients_match_the_reference(
    check_loss: Callable[..., None], state: ProbabilityBins
) -> None:
    check_loss("adafocal_init_sum", AdaFocal())
    check_loss("adafocal_state_sum", lambda *batch: binned_focal(*batch, bins=state))


def test_extreme_logits_stay_finite(
    check_extremes: Callable[..., None], state: ProbabilityBins
) -> None:
    check_extremes(AdaFocal())
    check_extremes(AdaFocal(first_gamma=0.5))
    check_extremes(lambda *batch: binned_focal(*batch, bins=state))


def test_before_any_update_it_is_focal_loss_with_the_first_gamma(
    reference_batch: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    logits, targets = reference_batch("a")

    losses = AdaFocal(first_gamma=2.0)(logits, targets)

    torch.testing.assert_close(losses, focal(logits, targets, gamma=2.0))


def test_equal_confidences_and_too_few_samples_give_usable_bins() -> None:
    for samples in (1, 4, 40):
        bins = update_bins(
            first_bins(), torch.full((samples,), 0.7), torch.ones(samples), GammaRule()
        )

        assert bins.gammas.isfinite().all()
        assert bins.gammas_of(torch.tensor([0.0, 0.7, 1.0])).isfinite().all()


def test_no_validation_samples_are_an_error() -> None:
    with pytest.raises(ValueError, match="0 validation samples"):
        AdaFocal().after_epoch(torch.empty(0), torch.empty(0))


def test_confidences_of_a_diverged_model_are_an_error() -> None:
    confidences = torch.tensor([0.5, torch.nan, 0.7])

    with pytest.raises(ValueError, match="1 of 3 confidences"):
        AdaFocal().after_epoch(confidences, torch.ones(3))


def test_a_restored_loss_continues_like_the_one_that_was_saved(
    record: dict[str, NDArray[np.float64]],
) -> None:
    passes = [
        (torch.tensor(confidence), torch.tensor(correct))
        for confidence, correct in zip(record["val_conf"], record["val_correct"], strict=True)
    ]
    saved, restored = AdaFocal(), AdaFocal()
    saved.after_epoch(*passes[0])

    restored.load_state_dict(saved.state_dict())

    saved.after_epoch(*passes[1])
    restored.after_epoch(*passes[1])
    torch.testing.assert_close(restored.state_dict(), saved.state_dict(), rtol=0, atol=0)


def test_the_rows_of_an_epoch_hold_the_gaps_that_moved_the_gammas() -> None:
    generator = torch.Generator().manual_seed(0)
    confidences = torch.rand(101, generator=generator, dtype=torch.float64)
    correct = torch.rand(101, generator=generator) < 0.5
    rule, before = GammaRule(), first_bins(5)

    bins = update_bins(before, confidences, correct, rule)
    rows = describe_bins(bins, confidences, correct)

    gaps = torch.tensor([row["gap"] for row in rows], dtype=torch.float64)
    torch.testing.assert_close(next_gammas(before.gammas, gaps, rule), bins.gammas)
    assert [row["gamma"] for row in rows] == bins.gammas.tolist()
    for row, lower, upper in zip(rows, bins.lower, bins.upper, strict=True):
        inside = (confidences > lower) & (confidences <= upper)
        assert row["samples"] == int(inside.sum())
        assert row["mean_confidence"] == pytest.approx(confidences[inside].mean().item())
        assert row["accuracy"] == pytest.approx(correct[inside].double().mean().item())


def test_an_empty_bin_has_a_gap_of_zero_and_neither_confidence_nor_accuracy() -> None:
    confidences, correct = torch.tensor([0.5, 0.5, 0.9]), torch.tensor([1, 0, 1])

    rows = describe_bins(
        update_bins(first_bins(3), confidences, correct, GammaRule()), confidences, correct
    )

    empty = [row for row in rows if not row["samples"]]
    assert empty
    assert all((r["gap"], r["mean_confidence"], r["accuracy"]) == (0.0, None, None) for r in empty)
