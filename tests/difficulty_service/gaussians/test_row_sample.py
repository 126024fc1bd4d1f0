"""Samples that a seed chooses, read from wherever they lie in the batches."""

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.products import BATCH_ROWS
from difficulty_service.gaussians.row_sample import choose_samples, count_rows, read_samples

ROWS = BATCH_ROWS + 1000


def numbered_rows(runs: int) -> TensorBatches:
    """Rows that hold their own number, with the number of the sample as its label."""
    numbers = torch.arange(ROWS, dtype=torch.float64)
    return TensorBatches(numbers[:, None], torch.arange(ROWS) // runs)


def naive_rows(chosen: Tensor, runs: int) -> list[float]:
    return [float(sample * runs + run) for sample in chosen.tolist() for run in range(runs)]


@pytest.mark.parametrize("runs", [1, 2])
def test_the_rows_of_the_chosen_samples_are_read(runs: int) -> None:
    source = numbered_rows(runs)
    assert len(count_rows(source)) > 1
    assert sum(count_rows(source)) == ROWS
    chosen = choose_samples(ROWS // runs, 300, seed=4)

    sample = read_samples(source, count_rows(source), chosen, runs)

    assert sample.features[:, 0].tolist() == naive_rows(chosen, runs)
    assert torch.equal(sample.labels, chosen)


def test_a_seed_chooses_the_same_samples_again_and_another_one_others() -> None:
    first, again, other = (choose_samples(1000, 50, seed).tolist() for seed in (1, 1, 2))

    assert first == again == sorted(set(first))
    assert first != other


def test_all_samples_are_taken_where_there_are_few() -> None:
    assert choose_samples(5, 50, seed=0).tolist() == [0, 1, 2, 3, 4]


def test_a_value_that_is_not_finite_is_named_by_its_row() -> None:
    source = numbered_rows(1)
    source.features[BATCH_ROWS + 7] = torch.nan

    with pytest.raises(StatisticsError, match=f"row {BATCH_ROWS + 7}"):
        read_samples(source, count_rows(source), torch.arange(ROWS), 1)
