"""Distances to every class without a sample equal those of a fit that never saw it."""

import pytest
import torch
from torch import Tensor

from difficulty_service.gaussians.class_distances import (
    class_distances,
    class_distances_left_out,
    class_geometry,
    distances_of_rows_left_out,
)
from difficulty_service.gaussians.products import Workspace

SAMPLES, CLASSES, DIM = 40, 4, 5
RIDGE = 0.7


def labelled_rows(runs: int) -> tuple[Tensor, Tensor]:
    """Rows of overlapping classes, a few per sample, and the class of each sample."""
    generator = torch.Generator().manual_seed(runs)
    labels = torch.arange(SAMPLES) % CLASSES
    centres = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    rows = torch.randn(SAMPLES * runs, DIM, generator=generator, dtype=torch.float64)
    return rows + centres[labels].repeat_interleave(runs, dim=0), labels


def naive_fit(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class means and the scatter within classes."""
    means = torch.stack([rows[labels == label].mean(dim=0) for label in range(CLASSES)])
    offsets = rows - means[labels]
    return means, offsets.T @ offsets


def naive_distances(rows: Tensor, means: Tensor, covariance: Tensor) -> Tensor:
    precision = torch.linalg.inv(covariance)
    offsets = rows[:, None] - means
    return torch.einsum("sci,ij,scj->sc", offsets, precision, offsets)


def whitening_with_ridge(scatter: Tensor, num_rows: int) -> Tensor:
    covariance = scatter / num_rows + RIDGE * torch.eye(DIM, dtype=torch.float64)
    return torch.linalg.inv(torch.linalg.cholesky(covariance))


def test_class_distances_are_squared_euclidean_distances() -> None:
    points, class_points = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[3.0, 4.0]])

    assert class_distances(points, class_points).tolist() == [[25.0], [0.0]]


@pytest.mark.parametrize("runs", [1, 3])
def test_a_sample_left_out_has_the_distances_of_a_fit_without_it(runs: int) -> None:
    rows, labels = labelled_rows(runs)
    row_labels = labels.repeat_interleave(runs)
    means, scatter = naive_fit(rows, row_labels)
    whitening = whitening_with_ridge(scatter, len(rows))

    left_out = class_distances_left_out(
        rows @ whitening.T, labels, means @ whitening.T, row_labels.bincount(), runs
    )

    for sample in range(0, SAMPLES, 7):
        own = slice(sample * runs, (sample + 1) * runs)
        kept = torch.ones(len(rows), dtype=torch.bool)
        kept[own] = False
        means_without, scatter_without = naive_fit(rows[kept], row_labels[kept])
        # The ridge keeps its proportion to the rest of the covariance.
        ridge = RIDGE * len(rows) * torch.eye(DIM, dtype=torch.float64)
        covariance = (scatter_without + ridge) / int(kept.sum())
        torch.testing.assert_close(
            left_out.distances[own], naive_distances(rows[own], means_without, covariance)
        )


def test_a_sample_alone_in_its_class_has_distances_to_the_other_classes_only() -> None:
    rows, labels = labelled_rows(1)
    labels[labels == 3] = 2
    labels[0] = 3
    means, scatter = naive_fit(rows, labels)
    whitening = whitening_with_ridge(scatter, len(rows))

    distances = class_distances_left_out(
        rows @ whitening.T, labels, means @ whitening.T, labels.bincount()
    ).distances

    assert distances[0].isnan().tolist() == [False, False, False, True]
    assert not distances[1:].isnan().any()


def test_a_sample_that_holds_all_of_a_direction_has_no_distances_and_full_leverage() -> None:
    rows, labels = labelled_rows(1)
    rows[:, 0] = 0
    rows[0, 0] = 1
    means, scatter = naive_fit(rows, labels)
    covariance = scatter / len(rows)
    whitening = torch.linalg.inv(torch.linalg.cholesky(covariance))

    left_out = class_distances_left_out(
        rows @ whitening.T, labels, means @ whitening.T, labels.bincount()
    )

    assert left_out.distances[0].isnan().all()
    assert left_out.leverage[0] == pytest.approx(1)
    assert (left_out.leverage[1:] < 0.9).all()


def test_inner_products_with_the_means_give_the_same_distances_and_leverage() -> None:
    rows, labels = labelled_rows(1)
    labels[labels == 3] = 2
    labels[0] = 3
    means, scatter = naive_fit(rows, labels)
    whitening = whitening_with_ridge(scatter, len(rows))
    points, class_points = rows @ whitening.T, means @ whitening.T
    counts = labels.bincount()

    found = distances_of_rows_left_out(
        points.square().sum(dim=1),
        -2 * points @ class_points.T,
        labels,
        class_geometry(class_points, counts),
        Workspace(),
    )

    expected = class_distances_left_out(points, labels, class_points, counts)
    torch.testing.assert_close(found.distances, expected.distances, equal_nan=True)
    torch.testing.assert_close(found.leverage, expected.leverage)
