"""Bars, outlines and ticks of the charts."""

import numpy as np
import pytest

from difficulty_service.pages.charts import Scale, densities, histogram, outline, scale_of


def test_bars_count_every_value_and_the_outermost_hold_what_is_beyond() -> None:
    values = np.array([-100.0, 0.0, 1.0, 1.0, 9.0, 500.0, np.nan])

    bars = histogram(values, Scale(0, 10), bins=10)

    assert [bar.count for bar in bars] == [2, 2, 0, 0, 0, 0, 0, 0, 0, 2]
    assert [bar.height for bar in bars if bar.count] == [1.0, 1.0, 1.0]
    assert (bars[3].left, bars[3].low, bars[3].high) == (30.0, 3.0, 4.0)


def test_logarithmic_bars_show_a_single_value_beside_a_thousand() -> None:
    values = np.array([0.5] * 1000 + [1.5])

    heights = [bar.height for bar in histogram(values, Scale(0, 2), bins=2, logarithmic=True)]

    assert heights == [1.0, pytest.approx(np.log(2) / np.log(1001), abs=1e-4)]


def test_the_scale_leaves_outliers_out() -> None:
    values = np.concatenate([np.linspace(-5, 20, 10_000), [1e6, np.nan]])

    scale = scale_of(values)

    assert scale is not None
    assert -5.1 < scale.low < -4.9
    assert 19.9 < scale.high < 20.1


@pytest.mark.parametrize("values", [[], [np.nan], [3.0, 3.0], [1e9, 1e9]])
def test_values_that_do_not_differ_have_no_scale(values: list[float]) -> None:
    assert scale_of(np.array(values, dtype=np.float64)) is None


def test_a_few_values_far_apart_still_have_a_scale() -> None:
    assert scale_of(np.array([0.0] * 5000 + [7.0])) == Scale(0.0, 7.0)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-7.2, 29.1, [-5, 0, 5, 10, 15, 20, 25]),
        (0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-1234.0, 5678.0, [-1000, 0, 1000, 2000, 3000, 4000, 5000]),
    ],
)
def test_ticks_are_round_values_along_the_axis(
    low: float, high: float, expected: list[float]
) -> None:
    assert list(Scale(low, high).ticks()) == expected


def test_positions_are_percentages_within_the_axis() -> None:
    scale = Scale(-10, 30)

    assert [scale.position(value) for value in (-99, -10, 0, 30, 99)] == [0, 0, 25, 100, 100]


def test_densities_compare_shares_of_groups_of_any_size() -> None:
    generator = np.random.default_rng(0)
    few, many = generator.normal(0, 1, 2000), generator.normal(0, 1, 50_000)

    shapes = densities([few, many], Scale(-4, 4), bins=32)

    assert shapes.max() == 1
    np.testing.assert_allclose(shapes[0], shapes[1], atol=0.1)


def test_an_outline_is_a_closed_area_above_the_base_line() -> None:
    assert outline(np.array([0.0, 1.0, 0.5]), 400, 36) == "M0 36L0 36L200 1L400 18.5L400 36Z"
