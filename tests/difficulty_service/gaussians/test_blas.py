"""Products with a triangular matrix equal those with the full matrix."""

import numpy as np
import pytest
from numpy.typing import NDArray

from difficulty_service.gaussians.blas import add_upper_gram, multiply_by_triangle

DTYPES = (np.float32, np.float64)


def random_rows(shape: tuple[int, int], dtype: type) -> NDArray[np.floating]:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (300, 7), (5, 130), (0, 3)])
def test_the_upper_triangle_of_a_gram_matrix_is_added(shape: tuple[int, int], dtype: type) -> None:
    rows = random_rows(shape, dtype)
    total = random_rows((shape[1], shape[1]), dtype)
    expected = np.where(np.tri(shape[1], k=-1), total, total + rows.T @ rows)

    add_upper_gram(rows, total)

    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (300, 7), (5, 130), (0, 3)])
def test_rows_are_multiplied_by_one_triangle_and_the_other_is_ignored(
    *, shape: tuple[int, int], dtype: type, upper: bool
) -> None:
    rows = random_rows(shape, dtype)
    full = random_rows((shape[1], shape[1]), dtype)
    triangle = np.triu(full) if upper else np.tril(full)
    expected = rows @ triangle
    full[triangle == 0] = np.nan

    multiply_by_triangle(rows, full, upper=upper)

    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "square",
    [
        np.zeros((4, 4), np.float32).T[::2],
        np.zeros((4, 4)),
        np.zeros((3, 3), np.float32),
        np.zeros((4, 4), np.int32),
        np.asfortranarray(np.eye(4, dtype=np.float32) + 1),
    ],
)
def test_memory_that_blas_would_misread_is_refused(square: NDArray[np.generic]) -> None:
    rows = np.ones((5, 4), np.float32)

    with pytest.raises(ValueError, match=r"expected two C-contiguous matrices|does not fit"):
        add_upper_gram(rows, square)
    with pytest.raises(ValueError, match=r"expected two C-contiguous matrices|does not fit"):
        multiply_by_triangle(rows, square, upper=True)
    with pytest.raises(ValueError, match="expected two C-contiguous"):
        add_upper_gram(np.ones((4, 5), np.float32).T, np.zeros((4, 4), np.float32))

    assert (rows == 1).all()
