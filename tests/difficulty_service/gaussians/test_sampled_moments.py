"""Moments whose covariance is that of some rows, which stand for all."""

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians import products
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.gaussian import covariance_within
from difficulty_service.gaussians.moments import Moments, accumulate_moments, pilot_of
from difficulty_service.gaussians.row_sample import count_rows
from difficulty_service.gaussians.sampled_moments import (
    WeightedRows,
    accumulate_sampled_moments,
    choose_weighted_rows,
)

ROWS, DIM, CLASSES = 20_000, 6, 3
CERTAIN = torch.arange(100, 600)


def labelled_rows() -> tuple[Tensor, Tensor]:
    """Rows of classes that lie in order, as those of a folder for each class do."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(ROWS) * CLASSES) // ROWS
    spread = torch.linspace(0.1, 3, DIM, dtype=torch.float64)
    features = spread * torch.randn(ROWS, DIM, generator=generator, dtype=torch.float64)
    return features + 5 + labels[:, None], labels


def sampled(features: Tensor, labels: Tensor, chosen: WeightedRows) -> Moments:
    source = TensorBatches(features, labels)
    return accumulate_sampled_moments(
        source, count_rows(source), chosen, pilot_of(features), CLASSES, features.dtype
    )


def test_rows_that_are_drawn_stand_for_all_that_are_not_certain() -> None:
    chosen = choose_weighted_rows(ROWS, CERTAIN, 3500, seed=1)

    weights = torch.zeros(ROWS).index_put((chosen.numbers,), chosen.weights)
    assert len(chosen.numbers) == 500 + 3500
    assert (chosen.numbers.diff() > 0).all()
    assert (weights[CERTAIN] == 1).all()
    assert weights.unique().tolist() == pytest.approx([0, 1, 19_500 / 3500])
    assert float(weights.double().sum()) == pytest.approx(ROWS)
    # From all over the dataset.
    assert (weights.view(10, -1).gt(0).sum(dim=1) > 250).all()


def test_all_rows_are_chosen_where_there_are_no_more() -> None:
    chosen = choose_weighted_rows(ROWS, CERTAIN, ROWS, seed=1)

    assert chosen.numbers.equal(torch.arange(ROWS))
    assert (chosen.weights == 1).all()


@pytest.mark.slow
def test_class_means_are_of_all_rows_and_the_covariance_of_those_chosen() -> None:
    features, labels = labelled_rows()
    chosen = choose_weighted_rows(ROWS, CERTAIN, 3500, seed=1)

    moments = sampled(features, labels, chosen)

    everything = accumulate_moments(
        TensorBatches(features, labels), moments.pilot, CLASSES, matmul_dtype=torch.float64
    )
    torch.testing.assert_close(moments.counts, everything.counts)
    torch.testing.assert_close(moments.class_sums, everything.class_sums)
    covariance = torch.zeros(DIM, DIM, dtype=torch.float64)
    for row, weight in zip(chosen.numbers.tolist(), chosen.weights.tolist(), strict=True):
        offset = features[row] - features[labels == labels[row]].mean(dim=0)
        covariance += weight * torch.outer(offset, offset) / ROWS
    torch.testing.assert_close(covariance_within(moments), covariance)
    # Between the classes nothing is estimated.
    between = everything.scatter - ROWS * covariance_within(everything)
    torch.testing.assert_close(moments.scatter - ROWS * covariance, between)


def test_the_moments_have_the_same_bytes_with_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, labels = labelled_rows()
    chosen = choose_weighted_rows(ROWS, CERTAIN, 3500, seed=1)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(products, "num_workers", lambda threads=threads: threads)
        found.append(sampled(features.float(), labels, chosen))

    assert found[0].scatter.equal(found[1].scatter)
    assert found[0].class_sums.equal(found[1].class_sums)


def test_a_value_that_is_not_finite_is_refused_by_its_row_chosen_or_not() -> None:
    features, labels = labelled_rows()
    chosen = choose_weighted_rows(ROWS, CERTAIN, 3500, seed=1)
    left_out = int((~torch.isin(torch.arange(ROWS), chosen.numbers)).nonzero()[9000])
    features[left_out, 2] = torch.inf

    with pytest.raises(StatisticsError, match=f"row {left_out}"):
        sampled(features, labels, chosen)
