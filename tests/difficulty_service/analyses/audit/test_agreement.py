"""How well scores agree with ranks, flags and errors."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score

from difficulty_service.base.errors import AuditError
from difficulty_service.scores.agreement import (
    error_rate_by_bin,
    flag_agreement,
    rank_agreement,
)

Numbers = NDArray[np.float64]


SCORES = np.random.default_rng(0).normal(size=500).round(1)
"""500 scores on a coarse grid, so that many are equal."""


@pytest.fixture
def flags() -> NDArray[np.bool_]:
    """More often true where scores are large."""
    return SCORES + np.random.default_rng(1).normal(size=500) > 1.5


def test_rank_correlation_with_ties_equals_scipy() -> None:
    values = (SCORES + np.random.default_rng(1).normal(size=500)).round(1)

    agreement = rank_agreement(SCORES, values)

    assert agreement.num_samples == 500
    assert agreement.spearman == pytest.approx(spearmanr(SCORES, values).statistic, abs=1e-12)


def test_the_interval_holds_the_true_rank_correlation_about_95_times_in_100() -> None:
    rng = np.random.default_rng(0)
    true_pearson = 0.5
    true_spearman = 6 / np.pi * np.arcsin(true_pearson / 2)

    holds = []
    for _ in range(1000):
        scores, noise = rng.normal(size=(2, 100))
        values = true_pearson * scores + np.sqrt(1 - true_pearson**2) * noise
        agreement = rank_agreement(scores, values)
        holds.append(agreement.low < true_spearman < agreement.high)

    assert 0.93 < np.mean(holds) < 0.97


def test_the_same_order_has_correlation_one_and_the_reverse_minus_one() -> None:
    scores = np.arange(7.0)

    assert rank_agreement(scores, np.exp(scores)).spearman == pytest.approx(1)
    assert rank_agreement(scores, -scores).spearman == pytest.approx(-1)


def test_equal_values_are_refused_because_they_have_no_order() -> None:
    with pytest.raises(AuditError, match="all 500 values are 3"):
        rank_agreement(SCORES, np.full(500, 3.0))


def test_three_samples_are_too_few_for_a_rank_correlation() -> None:
    with pytest.raises(AuditError, match="3 samples are too few"):
        rank_agreement([1, 2, 3], [1, 2, 3])


def test_auroc_and_average_precision_with_ties_equal_scikit_learn(flags: NDArray[np.bool_]) -> None:
    agreement = flag_agreement(SCORES, flags)

    assert agreement.auroc == pytest.approx(roc_auc_score(flags, SCORES), abs=1e-12)
    expected = average_precision_score(flags, SCORES)
    assert agreement.average_precision == pytest.approx(expected, abs=1e-12)
    assert agreement.base_rate == flags.mean()


def test_auroc_counts_pairs_and_half_of_the_ties() -> None:
    scores, flags = np.array([1, 2, 2, 3, 0]), np.array([0, 1, 0, 1, 1])

    agreement = flag_agreement(scores, flags)

    pairs = [(2, 1), (2, 2), (3, 1), (3, 2), (0, 1), (0, 2)]
    assert agreement.auroc == sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)


def test_an_increasing_map_of_the_scores_changes_no_agreement_with_flags(
    flags: NDArray[np.bool_],
) -> None:
    agreement = flag_agreement(SCORES, flags)

    assert flag_agreement(np.exp(SCORES), flags) == agreement
    assert flag_agreement(1e300 * SCORES, flags) == agreement


def test_recall_is_the_share_of_the_flagged_among_as_many_hardest() -> None:
    flags = np.array([0, 0, 1, 0, 1, 1])

    agreement = flag_agreement(np.arange(6), flags)

    assert agreement.recall == pytest.approx(2 / 3)


def test_recall_of_equal_scores_is_the_base_rate(flags: NDArray[np.bool_]) -> None:
    agreement = flag_agreement(np.zeros(500), flags)

    assert agreement.recall == pytest.approx(agreement.base_rate)


@pytest.mark.parametrize("flag", [0, 1])
def test_flags_that_are_all_the_same_are_refused(flag: int) -> None:
    with pytest.raises(AuditError, match=f"{500 * flag} of 500 samples are flagged"):
        flag_agreement(SCORES, np.full(500, flag))


def test_bins_hold_every_sample_once_from_easiest_to_hardest(flags: NDArray[np.bool_]) -> None:
    bins = error_rate_by_bin(SCORES, flags, num_bins=7)

    assert bins.counts.sum() == 500
    assert bins.counts.max() - bins.counts.min() == 1
    assert (bins.counts * bins.error_rates).sum() == pytest.approx(flags.sum())
    assert bins.error_rate == pytest.approx(flags.mean())
    assert (bins.highest[:-1] <= bins.lowest[1:]).all()


def test_the_error_rate_of_a_bin_is_the_mean_error_of_its_samples() -> None:
    scores = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 0.0])
    errors = np.array([1, 0, 1, 0, 0, 1])

    bins = error_rate_by_bin(scores, errors, num_bins=3)

    np.testing.assert_array_equal(bins.error_rates, [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(bins.lowest, [0, 2, 4])
    np.testing.assert_array_equal(bins.highest, [1, 3, 5])


def test_the_order_of_samples_changes_no_bin(flags: NDArray[np.bool_]) -> None:
    order = np.random.default_rng(2).permutation(500)

    first = error_rate_by_bin(SCORES, flags)
    second = error_rate_by_bin(SCORES[order], flags[order])

    np.testing.assert_allclose(first.error_rates, second.error_rates, atol=1e-12)


@pytest.mark.parametrize("num_bins", [0, 501])
def test_an_invalid_number_of_bins_is_refused_with_the_number_of_samples(
    flags: NDArray[np.bool_], num_bins: int
) -> None:
    with pytest.raises(AuditError, match=f"{num_bins} bins of 500 samples"):
        error_rate_by_bin(SCORES, flags, num_bins)


def test_nan_is_refused_and_counted(flags: NDArray[np.bool_]) -> None:
    SCORES[:3] = np.nan

    with pytest.raises(AuditError, match="3 of 500 samples are NaN"):
        flag_agreement(SCORES, flags)


def test_agreements_are_described_in_lines_of_text() -> None:
    flags = np.array([0, 0, 0, 1])

    ranks = "\n".join(rank_agreement(np.arange(4), flags).lines())
    found = "\n".join(flag_agreement(np.arange(4), flags).lines())
    table = error_rate_by_bin(np.arange(4), flags, num_bins=2).lines()

    assert "0.775" in ranks
    assert "1 of 4 samples are flagged (25.0%)" in found
    assert "AUROC 1.000" in found
    assert table[0].startswith("error rate 0.00% in the easiest bin, 50.00% in the hardest")
    assert len({len(line) for line in table[1:]}) == 1
