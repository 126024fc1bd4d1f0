"""Weights between 0 and 1 in the order of the scores, and their statistics."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from difficulty_service.base.errors import ConfigError, TrainingError
from trainer.config import Normalise
from trainer.weights.formula import WeightsDistribution, describe_weights, sample_weights

DATA = Path(__file__).resolve().parents[2] / "data"
NORMALISE: list[Normalise] = ["minmax", "per_dimension", "zscore", "none"]
DIM = 32


@pytest.fixture(scope="module")
def scores() -> Tensor:
    """RMD of 600 samples, 6 % of them mislabelled, from -21 to 66."""
    return torch.tensor(np.load(DATA / "rmd.npz")["np_pooled__rmd_own"])


def make_distribution(weights: list[float]) -> WeightsDistribution:
    return describe_weights(torch.tensor(weights, dtype=torch.float64))


@pytest.mark.parametrize(
    ("normalise", "golden"),
    [
        ("none", "s_raw_T0.7_c1e-3"),
        ("zscore", "s_zscore_T0.7_c1e-3"),
        ("minmax", "s_minmax_T0.7_c1e-3"),
        ("per_dimension", "s_perdim_T0.7_c1e-3"),
    ],
)
def test_weights_match_the_golden_file(scores: Tensor, normalise: Normalise, golden: str) -> None:
    expected = torch.tensor(np.load(DATA / "weights.npz")[golden])

    weights = sample_weights(scores, normalise=normalise, winsorise=0, dim=DIM)

    torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("c", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("score_temperature", [0.3, 0.7, 5.0])
def test_weights_of_mild_scores_match_equation_10_written_out(
    c: float, score_temperature: float
) -> None:
    scores = [-3.0, -0.5, 0.0, 1.25, 2.0]
    exponentials = [math.exp(score / score_temperature) for score in scores]
    expected = [exponential / (max(exponentials) + c) for exponential in exponentials]

    weights = sample_weights(
        torch.tensor(scores), normalise="none", score_temperature=score_temperature, c=c
    )

    np.testing.assert_allclose(weights, expected, rtol=1e-12)


def test_winsorised_scores_are_clipped_to_the_next_score() -> None:
    scores = torch.tensor([5.0, -1000.0, 2.0, 3.0, 1.0, 4.0, 0.0, 6.0, 7.0, 1000.0])
    clipped = torch.tensor([5.0, 0.0, 2.0, 3.0, 1.0, 4.0, 0.0, 6.0, 7.0, 7.0])

    for normalise in ("minmax", "zscore"):
        weights = sample_weights(scores, normalise=normalise, winsorise=0.1)

        expected = sample_weights(clipped, normalise=normalise, winsorise=0)
        torch.testing.assert_close(weights, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("normalise", ["minmax", "zscore"])
def test_one_outlier_among_a_thousand_does_not_flatten_the_others(
    scores: Tensor, normalise: Normalise
) -> None:
    many = torch.cat([scores, scores])
    with_outlier = torch.cat([many, torch.tensor([1e6], dtype=torch.float64)])

    weights = sample_weights(with_outlier, normalise=normalise)

    expected = sample_weights(many, normalise=normalise)
    torch.testing.assert_close(weights[:-1], expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("normalise", ["minmax", "zscore"])
def test_normalised_weights_ignore_scale_and_shift_of_the_scores(
    scores: Tensor, normalise: Normalise
) -> None:
    weights = sample_weights(scores, normalise=normalise)

    moved = sample_weights(1000 * scores - 77, normalise=normalise)

    torch.testing.assert_close(moved, weights, rtol=1e-9, atol=0)


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    normalise=st.sampled_from(NORMALISE),
    score_temperature=st.sampled_from([1e-6, 0.7, 1e6]),
    c=st.sampled_from([0.0, 1e-3, 1e3]),
    winsorise=st.sampled_from([0.0, 0.001, 0.3]),
)
def test_weights_lie_between_0_and_1_in_the_order_of_any_finite_scores(
    values: list[float], normalise: Normalise, score_temperature: float, c: float, winsorise: float
) -> None:
    scores = torch.tensor(values, dtype=torch.float64)

    weights = sample_weights(
        scores,
        normalise=normalise,
        score_temperature=score_temperature,
        c=c,
        winsorise=winsorise,
        dim=DIM,
    )

    assert weights.dtype == torch.float64
    assert (weights > 0).all()
    assert (weights < 1).all()
    steps = weights[scores.argsort()].diff()
    assert (steps >= -1e-15).all()  # the exponential of a library may be out by its last bit


@pytest.mark.parametrize("normalise", NORMALISE)
def test_harder_samples_weigh_strictly_more(normalise: Normalise) -> None:
    scores = torch.linspace(-3, 3, 101)

    weights = sample_weights(scores, normalise=normalise, winsorise=0, dim=DIM)

    assert (weights.diff() > 0).all()


@pytest.mark.parametrize("sign", [-1, 1])
def test_raw_scores_of_a_million_give_neither_nan_nor_infinity(sign: int) -> None:
    scores = sign * torch.tensor([1e6, 1e6 - 0.7, 5e5], dtype=torch.float64)

    weights = sample_weights(scores, normalise="none")

    # Far above 0 the constant c vanishes; far below, it is the whole denominator.
    expected = [1.0, math.exp(-1), 0.0] if sign > 0 else [0.0, 0.0, 0.0]
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-300)
    assert (weights > 0).all()
    assert (weights < 1).all()


@pytest.mark.parametrize("value", [0.1, -1e6, 1e6, 0.0])
@pytest.mark.parametrize("normalise", NORMALISE)
def test_equal_scores_give_equal_weights(normalise: Normalise, value: float) -> None:
    scores = torch.full((1001,), value, dtype=torch.float64)

    weights = sample_weights(scores, normalise=normalise, dim=DIM)

    assert weights.unique().numel() == 1
    assert 0 < weights[0] < 1


def test_scores_that_are_not_finite_are_counted() -> None:
    scores = torch.tensor([0.0, math.nan, math.inf, -math.inf, 1.0])

    with pytest.raises(TrainingError, match="3 of 5 scores are NaN or infinite"):
        sample_weights(scores)


@pytest.mark.parametrize("shape", [(0,), (3, 1), ()])
def test_scores_are_one_per_sample(shape: tuple[int, ...]) -> None:
    with pytest.raises(TrainingError, match="one score per sample"):
        sample_weights(torch.zeros(shape))


@pytest.mark.parametrize("dim", [None, 0])
def test_per_dimension_needs_the_dimension_of_the_features(dim: int | None) -> None:
    with pytest.raises(ConfigError, match=f"dimension of the features, and {dim} is not"):
        sample_weights(torch.zeros(3), normalise="per_dimension", dim=dim)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"score_temperature": 0.0}, r"score_temperature 0\.0 must be above 0"),
        ({"score_temperature": math.nan}, "score_temperature nan must be above 0"),
        ({"c": -1.0}, r"c -1\.0 zero or more"),
        ({"winsorise": 0.5}, r"winsorise 0\.5 must be 0 or more and below 0\.5"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, float], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sample_weights(torch.zeros(3), **options)  # type: ignore[arg-type]


def test_a_normalisation_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"'rank'; choose 'minmax', 'per_dimension', 'zscore'"):
        sample_weights(torch.zeros(3), normalise="rank")  # type: ignore[arg-type]


def test_the_distribution_matches_values_counted_by_hand() -> None:
    distribution = make_distribution([0.005, 0.2, 0.4, 0.795])

    assert distribution.count == 4
    assert distribution.mean == pytest.approx(0.35)
    squares = 0.005**2 + 0.2**2 + 0.4**2 + 0.795**2
    assert distribution.std == pytest.approx(math.sqrt(squares / 4 - 0.35**2))
    assert (distribution.min, distribution.max) == (0.005, 0.795)
    assert distribution.quantiles["50"] == pytest.approx(0.3)
    assert list(distribution.quantiles) == ["1", "5", "25", "50", "75", "95", "99"]
    assert distribution.effective_share == pytest.approx(1.4**2 / (4 * squares))
    assert distribution.share_above_hundredth == 0.75


def test_the_effective_share_of_one_weight_among_vanishing_ones_is_one_in_n() -> None:
    distribution = make_distribution([1e-300, 0.9, 1e-300, 1e-300])

    assert distribution.effective_share == pytest.approx(0.25)


def test_the_effective_share_of_vanishing_equal_weights_is_one() -> None:
    assert make_distribution([1e-300] * 3).effective_share == pytest.approx(1)


def test_a_distribution_survives_json(scores: Tensor) -> None:
    distribution = describe_weights(sample_weights(scores), missing=2, surplus=3)

    stored = json.loads(json.dumps(distribution.as_dict(), allow_nan=False))

    assert WeightsDistribution(**stored) == distribution


def test_the_summary_of_normalised_weights_has_no_warning(scores: Tensor) -> None:
    summary = describe_weights(sample_weights(scores)).summary()

    assert summary.startswith("Weights of 600 training samples: mean 0.")
    assert "100.0% of the weights are above 0.01" in summary
    assert "Warning" not in summary
    assert "\n" not in summary


def test_the_summary_of_raw_scores_warns_of_collapsed_weights(scores: Tensor) -> None:
    summary = describe_weights(sample_weights(scores, normalise="none")).summary()

    assert "Warning: the weights have collapsed: 0.33% of the samples are above 0.01" in summary
    assert 'Use regulariser.normalise = "minmax"' in summary


def test_the_summary_warns_of_nearly_constant_weights(scores: Tensor) -> None:
    weights = sample_weights(scores, score_temperature=100)

    summary = describe_weights(weights).summary()

    assert "Warning: the weights are nearly constant (coefficient of variation 0.00" in summary
    assert "a smaller regulariser.score_temperature" in summary


def test_the_summary_counts_samples_and_scores_without_a_match() -> None:
    summary = describe_weights(torch.tensor([0.1, 0.9]), missing=1200, surplus=7).summary()

    assert "Samples without a score, with the mean weight: 1,200." in summary
    assert "Scores without a sample: 7." in summary
