"""What is said of the tiers is what was measured."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from difficulty_service.scores.label_counts import FIT_ERROR
from difficulty_service.scores.tiers import (
    ALMOST_CERTAIN_SUSPICION,
    ALMOST_CERTAINLY_WRONG,
    HOW_SURE,
    NUM_SETS,
    PROBABLE_SUSPICION,
    PROBABLY_WRONG,
    RELIABILITY,
)

COUNTS = Path(__file__).parents[3] / "docs" / "evidence" / "counts.csv"


def known_sets() -> Iterator[dict[str, str]]:
    """The sets of labels whose errors are known."""
    with COUNTS.open(newline="", encoding="utf-8") as file:
        yield from (row for row in csv.DictReader(file) if int(row["wrong"]))


@pytest.mark.parametrize(
    ("tier", "column"), [(PROBABLY_WRONG, "above_half"), (ALMOST_CERTAINLY_WRONG, "above_95")]
)
def test_the_reliability_of_a_tier_is_that_of_the_measured_sets(tier: str, column: str) -> None:
    rows = list(known_sets())
    numbers = np.array([int(row[column]) for row in rows])
    shares = np.array([float(row[f"{column}_wrong_share"]) for row in rows])

    stated = RELIABILITY[tier]

    assert len(rows) == NUM_SETS
    assert stated.share == round(float(np.average(shares, weights=numbers)), 2)
    assert (stated.low, stated.high) == (shares.min(), shares.max())


def test_the_lower_bound_holds_in_every_one_of_the_measured_sets() -> None:
    for row in known_sets():
        assert FIT_ERROR * int(row["fit_low"]) <= int(row["wrong"])


def test_the_sentence_names_both_tiers_with_their_shares() -> None:
    assert "of the labels called probably wrong 84 % were wrong (58 to 98 % by dataset)" in HOW_SURE
    assert "called almost certainly wrong 96 % were wrong (62 to 100 % by dataset)" in HOW_SURE


def test_the_thresholds_of_suspicion_are_those_of_the_probability() -> None:
    suspicion = np.array([PROBABLE_SUSPICION, ALMOST_CERTAIN_SUSPICION])

    np.testing.assert_allclose(1 / (1 + np.exp(-suspicion)), [0.5, 0.95])
