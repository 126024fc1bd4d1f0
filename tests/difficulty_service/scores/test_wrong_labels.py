"""Flipped labels, and the number of wrong labels that follows from them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch.nn import functional as F

from difficulty_service.base.errors import StatisticsError
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.reports.label_flips import FlippedMargins, flip_and_score
from difficulty_service.reports.wrong_labels import (
    CutEstimate,
    estimate_cuts,
    number_of_wrong_labels,
)
from difficulty_service.scores.label_counts import Proportion
from tests.factories import store_of

NAMES = ("ant", "bee", "cat", "none")


def make_store(
    tmp_path: Path, distance: float = 6, runs: int = 1, num_classes: int = 3
) -> FeatureStore:
    """Writes features of three classes in two parts; ant and bee are near each other."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % num_classes
    centres = distance * F.one_hot(labels, 4).float()
    centres[:, 0] += distance * (labels == 1) / 2
    rows = torch.randn(600, runs, 4, generator=generator) / 2 + centres[:, None]
    ids = [str(row) for row in range(600)]
    return store_of(tmp_path / "store", rows, labels, ids, 400, class_names=NAMES)


@pytest.mark.parametrize("runs", [1, 2])
def test_flipped_labels_of_separate_classes_are_found_and_the_others_are_not(
    tmp_path: Path, runs: int
) -> None:
    flipped = flip_and_score(make_store(tmp_path, runs=runs), FitOptions(), repeats=2)

    assert len(flipped.at_random) == len(flipped.confused) == 24
    assert (flipped.at_random > 0).all()
    assert (flipped.margins <= 0).all()
    assert list(flipped.sample_ids) == [str(row) for row in range(600)]


def test_flips_to_similar_classes_are_harder_to_find(
    tmp_path: Path,
) -> None:
    flipped = flip_and_score(make_store(tmp_path, distance=2), FitOptions(), share=0.1, repeats=4)

    assert np.median(flipped.confused) < np.median(flipped.at_random)


def test_the_seed_chooses_the_flips(tmp_path: Path) -> None:
    store = make_store(tmp_path)

    first, again, other = (
        flip_and_score(store, FitOptions(), repeats=1, seed=seed).at_random for seed in (0, 0, 1)
    )

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_labels_of_a_single_class_cannot_be_flipped(
    tmp_path: Path,
) -> None:
    with pytest.raises(StatisticsError, match="only between two classes"):
        flip_and_score(make_store(tmp_path, num_classes=1), FitOptions())


def test_shares_are_counted_above_each_cut() -> None:
    margins = np.arange(-500.0, 500.0)
    ids = [str(row) for row in range(1000)]
    flipped = FlippedMargins(ids, margins, np.array([-1.0, 1, 460, 495]), np.array([-1.0, 1]))

    estimates = estimate_cuts(flipped, {"0": True, "501": False, "990": True, "unknown": True})

    assert [each.cut for each in estimates] == [0, 449.0, 479.0, 489.0]
    assert [each.num_above for each in estimates] == [499, 50, 20, 10]
    assert [each.at_random.hits for each in estimates] == [3, 2, 1, 1]
    assert estimates[0].confused == Proportion(1, 2)
    assert estimates[0].reviewed == Proportion(1, 2)
    assert estimates[-1].reviewed == Proportion(1, 1)


@pytest.mark.parametrize(("hits", "cases"), [(61, 100), (0, 7), (7, 7), (1, 1_000_000)])
def test_the_interval_of_a_share_is_that_of_wilson(hits: int, cases: int) -> None:
    expected = binomtest(hits, cases).proportion_ci(0.95, method="wilson")

    low, high = Proportion(hits, cases).interval()

    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)


def test_nothing_is_known_of_a_share_without_cases() -> None:
    assert Proportion(0, 0).interval() == (0, 1)


def test_the_number_of_wrong_labels_is_precision_times_samples_over_recall() -> None:
    found, review = Proportion(80_000, 100_000), Proportion(30_000, 100_000)

    low, high = number_of_wrong_labels(CutEstimate(0, 4000, found, found, review))

    assert low < 4000 * 0.3 / 0.8 < high
    assert high - low < 60


def test_a_small_review_and_a_second_kind_of_flips_widen_the_interval() -> None:
    easy, hard = Proportion(90_000, 100_000), Proportion(60_000, 100_000)
    large, small = Proportion(3000, 10_000), Proportion(30, 100)

    narrow, wide, widest = (
        np.diff(number_of_wrong_labels(CutEstimate(0, 4000, easy, confused, review)))
        for confused, review in ((easy, large), (easy, small), (hard, small))
    )

    assert narrow < wide / 5
    assert wide < widest
