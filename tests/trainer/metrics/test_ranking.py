"""AUROC, AUPR and the false positive rate: order alone counts, and ties are fair."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.ranking import Convention, aupr, auroc, fpr_at_95_tpr, roc_curve


@pytest.fixture
def tied() -> tuple[Tensor, Tensor]:
    """Scores of nine values only, larger for positives."""
    generator = torch.Generator().manual_seed(0)
    positive = torch.rand(300, generator=generator) < 0.3
    scores = torch.randint(0, 8, (300,), generator=generator) + positive.long()
    return scores.double(), positive


def test_auroc_and_aupr_with_ties_are_those_of_scikit_learn(tied: tuple[Tensor, Tensor]) -> None:
    scores, positive = tied

    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    assert aupr(scores, positive) == pytest.approx(average_precision_score(positive, scores))


def test_auroc_is_the_share_of_pairs_in_the_right_order(tied: tuple[Tensor, Tensor]) -> None:
    scores, positive = tied
    difference = scores[positive][:, None] - scores[~positive][None, :]
    won = (difference > 0).double() + (difference == 0).double() / 2

    assert auroc(scores, positive) == pytest.approx(float(won.mean()), rel=1e-12)


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_95_tpr])
@pytest.mark.parametrize(("scale", "shift"), [(1e6, 0.0), (1e-9, 0.0), (1.0, 400.0), (3.0, -1e3)])
def test_scaling_and_shifting_scores_changes_nothing(
    tied: tuple[Tensor, Tensor], metric: object, scale: float, shift: float
) -> None:
    scores, positive = tied
    assert callable(metric)

    assert metric(scale * scores + shift, positive) == metric(scores, positive)


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_95_tpr])
def test_the_order_of_the_samples_changes_nothing(
    tied: tuple[Tensor, Tensor], metric: object
) -> None:
    scores, positive = tied
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(1))
    assert callable(metric)

    assert metric(scores[order], positive[order]) == pytest.approx(metric(scores, positive))


def test_reversed_scores_have_the_opposite_auroc(tied: tuple[Tensor, Tensor]) -> None:
    scores, positive = tied

    assert auroc(-scores, positive) == pytest.approx(1 - auroc(scores, positive))


def test_the_first_threshold_finds_95_percent_and_the_nearest_may_find_fewer() -> None:
    # From the top: 18 positives, a negative, a positive, nine negatives; 18 of 19 is 94.7 %.
    positive = torch.tensor([1] * 18 + [0] + [1] + [0] * 9)
    scores = -torch.arange(len(positive))

    assert fpr_at_95_tpr(scores, positive) == pytest.approx(0.1)
    assert fpr_at_95_tpr(scores, positive, "nearest") == 0


@pytest.mark.parametrize("decimals", [1, 9])
def test_the_nearest_corner_is_the_nearest_point_of_scikit_learns_reduced_curve(
    decimals: int,
) -> None:
    generator = torch.Generator().manual_seed(3)
    differences = 0
    for _ in range(100):
        positive = torch.rand(90, generator=generator) < 0.6
        scores = (torch.randn(90, generator=generator).double() + positive).round(decimals=decimals)
        misses, hits, _ = sklearn.metrics.roc_curve(positive, scores)
        expected = misses[abs(hits - 0.95).argmin()]

        value = fpr_at_95_tpr(scores, positive, "nearest_corner")

        assert value == pytest.approx(expected, abs=1e-12)
        differences += value != fpr_at_95_tpr(scores, positive, "nearest")
    # The corner and the nearest of all points are two conventions.
    assert differences > 0


def test_a_point_within_a_straight_stretch_is_no_corner() -> None:
    # 37 positives, a negative, 3 positives, a negative: 95 % is reached in the second stretch,
    # whose end at 100 % is farther from 95 % than the end of the first at 92.5 %.
    positive = torch.tensor([1] * 37 + [0] + [1] * 3 + [0])
    scores = -torch.arange(len(positive))

    assert fpr_at_95_tpr(scores, positive, "nearest") == 0.5
    assert fpr_at_95_tpr(scores, positive, "nearest_corner") == 0


def test_the_curve_has_the_corners_of_scikit_learn_and_the_area_is_the_auroc(
    tied: tuple[Tensor, Tensor],
) -> None:
    scores, positive = tied

    curve = roc_curve(scores, positive)

    misses, hits, _ = sklearn.metrics.roc_curve(positive, scores)
    assert curve.false_positive_rates == pytest.approx(misses)
    assert curve.true_positive_rates == pytest.approx(hits)
    area = np.trapezoid(curve.true_positive_rates, curve.false_positive_rates)
    assert area == pytest.approx(auroc(scores, positive))


def test_a_perfect_order_has_a_curve_of_three_points() -> None:
    curve = roc_curve(torch.arange(10), torch.arange(10) >= 4)

    assert curve.false_positive_rates.tolist() == [0, 0, 1]
    assert curve.true_positive_rates.tolist() == [0, 1, 1]


def test_exactly_95_percent_is_enough() -> None:
    positive = torch.tensor([1] * 19 + [0, 0] + [1])

    assert fpr_at_95_tpr(-torch.arange(22), positive) == 0


def test_infinite_scores_have_their_place_in_the_order() -> None:
    scores = torch.tensor([-math.inf, 0.0, math.inf, math.inf])

    assert auroc(scores, torch.tensor([0, 0, 1, 1])) == 1


def test_an_unknown_convention_is_refused_by_name(tied: tuple[Tensor, Tensor]) -> None:
    convention: Convention = "last"  # type: ignore[assignment]

    with pytest.raises(MetricError, match="'last'"):
        fpr_at_95_tpr(*tied, convention)


@pytest.mark.parametrize(
    ("scores", "positive", "words"),
    [
        ([1.0, 2.0], [1, 1], "2 of 2"),
        ([1.0, 2.0], [0, 0], "0 of 2"),
        ([1.0, math.nan], [0, 1], "1 of 2 scores are NaN"),
        ([1.0], [0, 1], r"\(1,\) beside"),
    ],
)
def test_scores_that_cannot_be_ranked_are_refused(
    scores: list[float], positive: list[int], words: str
) -> None:
    with pytest.raises(MetricError, match=words):
        auroc(torch.tensor(scores), torch.tensor(positive))
