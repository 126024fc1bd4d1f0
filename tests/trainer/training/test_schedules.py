"""Schedules of the learning rate."""

import math
from typing import Any

import pytest

from trainer.config.steps import StepRate
from trainer.recipes.tables import TABLES
from trainer.training.plan import rate_at

STEPS, EPOCHS = 100, 10


def rates(**config: Any) -> list[float]:  # noqa: ANN401 - values of a schedule
    schedule = TABLES["schedule"].of(config)(**config)
    return [rate_at(step, STEPS, EPOCHS, schedule) for step in range(STEPS)]


def test_constant_is_constant() -> None:
    assert rates(name="constant") == [1.0] * STEPS


def test_steps_fall_at_the_first_step_of_an_epoch() -> None:
    expected = [1.0] * 30 + [0.1] * 40 + [0.01] * 30

    assert rates(name="steps", milestones=(3, 7), factor=0.1) == pytest.approx(expected)


def test_milestones_may_be_fractions_of_all_epochs() -> None:
    shares = rates(name="steps", milestones=(0.3, 0.7), factor=0.5)

    assert shares == rates(name="steps", milestones=(3, 7), factor=0.5)


def test_rounding_never_moves_a_milestone() -> None:
    steps_per_epoch, epochs = 391, 350

    for milestone in range(1, epochs):
        schedule = StepRate(milestones=(milestone,), factor=0.1)
        first = milestone * steps_per_epoch
        before, at = (
            rate_at(step, epochs * steps_per_epoch, epochs, schedule) for step in (first - 1, first)
        )
        assert (before, at) == (1.0, 0.1), milestone


def test_cosine_follows_the_formula_and_never_reaches_zero() -> None:
    expected = [0.5 * (1 + math.cos(math.pi * step / STEPS)) for step in range(STEPS)]

    assert rates(name="cosine") == pytest.approx(expected)
    assert min(rates(name="cosine")) > 0


def test_one_cycle_rises_and_falls_linearly() -> None:
    shares = rates(name="one_cycle", warmup=0.2)

    assert shares[:20] == pytest.approx([(step + 1) / 21 for step in range(20)])
    assert shares[20:] == pytest.approx([1 - step / 80 for step in range(80)])


@pytest.mark.parametrize("name", ["constant", "cosine", "one_cycle", "steps"])
@pytest.mark.parametrize("warmup", [0.0, 0.004, 0.2, 0.255])
def test_every_schedule_reaches_its_highest_rate_and_is_never_zero(
    name: str, warmup: float
) -> None:
    milestones = {"milestones": (5.0,)} if name == "steps" else {}

    shares = rates(name=name, warmup=warmup, **milestones)

    highest = shares.index(max(shares))
    assert max(shares) == pytest.approx(1, abs=0.02)
    assert shares[:highest] == sorted(shares[:highest])
    assert all(0 < share <= 1 for share in shares)


def test_warm_up_comes_before_any_milestone() -> None:
    shares = rates(name="steps", milestones=(5,), warmup=0.1)

    assert shares[0] == pytest.approx(1 / 11)
    assert shares[10:50] == [1.0] * 40
    assert shares[50] == pytest.approx(0.1)
