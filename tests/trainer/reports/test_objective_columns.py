"""A comparison says which loss and which weights every run used."""

from typing import Any

import pytest

from trainer.reports.comparison_table import objective_cells

FOCAL = {"name": "focal", "constants": {"gamma": 2.0}}
CROSS_ENTROPY: dict[str, Any] = {"name": "cross_entropy", "constants": {}}
BY_SCORES = {
    "scores": {"column": "rmd", "file": "scores.parquet"},
    "formula": {"normalise": "minmax", "score_temperature": 0.7},
    "distribution": {"mean": 0.4, "std": 0.1, "min": 0.24, "max": 0.999},
}


@pytest.mark.parametrize(
    ("objective", "cells"),
    [
        (
            {"loss": FOCAL, "alpha": 0, "weights": "none"},
            ["focal (gamma = 2)", "none", "\N{EN DASH}"],
        ),
        (
            {"loss": FOCAL, "alpha": 0, "weights": "none", "labels": {"targets": "posterior"}},
            ["focal (gamma = 2), by the posterior of labels", "none", "\N{EN DASH}"],
        ),
        (
            {"loss": FOCAL, "alpha": 0, "weights": "none", "labels": {"targets": "labels"}},
            ["focal (gamma = 2), times the probability of the label", "none", "\N{EN DASH}"],
        ),
        (
            {"loss": CROSS_ENTROPY, "alpha": 0.1, "weights": "constant"},
            ["cross_entropy", "0.1 x entropy", "all 1"],
        ),
        (
            {"loss": CROSS_ENTROPY, "alpha": 0.3, "weights": "scores", **BY_SCORES},
            [
                "cross_entropy",
                "0.3 x weight x entropy",
                "by `rmd` of scores.parquet; minmax, T = 0.7; mean 0.40 ± 0.10, 0.24 to 1.00",
            ],
        ),
    ],
)
def test_loss_entropy_term_and_weights_have_a_cell_each(
    objective: dict[str, Any], cells: list[str]
) -> None:
    assert objective_cells(objective) == cells


def test_lists_of_constants_are_shown_in_brackets() -> None:
    loss = {"name": "scheduled_focal", "constants": {"gammas": [5.0, 3.0], "fractional": True}}

    name, *_ = objective_cells({"loss": loss, "alpha": 0, "weights": "none"})

    assert name == "scheduled_focal (gammas = [5, 3], fractional = True)"
