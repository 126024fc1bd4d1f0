"""Matrix products, and the workspace of a batch, which changes only features in its own buffer."""

import pytest
import torch
from torch import Tensor

from difficulty_service.gaussians import products
from difficulty_service.gaussians.products import (
    Workspace,
    argmax,
    logsumexp,
    mirror_upper,
    project,
    rounded_matmul,
)

SQUARE = torch.randn(150, 150, generator=torch.Generator().manual_seed(1)).double()
POINT = torch.tensor([1.0, 2.0, 3.0])


def test_features_in_the_buffer_of_the_workspace_are_centred_in_place() -> None:
    work = Workspace()
    features = work.matrix("features", 5, 3, POINT).fill_(4)

    centred = work.centred(features, POINT)

    assert centred.data_ptr() == features.data_ptr()
    assert centred.tolist() == [[3, 2, 1]] * 5


def test_features_outside_the_workspace_are_not_changed() -> None:
    work = Workspace()
    work.matrix("features", 5, 3, POINT).fill_(0)
    features = torch.full((5, 3), 4.0)

    centred = work.centred(features, POINT)

    assert centred.tolist() == [[3, 2, 1]] * 5
    assert (features == 4).all()


def test_float32_features_are_centred_in_float64_if_the_point_is_float64() -> None:
    work = Workspace()
    features = work.matrix("features", 2, 3, POINT).fill_(1 / 3)

    centred = work.centred(features, POINT.double() / 3)

    assert centred.dtype == torch.float64
    torch.testing.assert_close(centred, features.double() - POINT.double() / 3, rtol=0, atol=0)
    assert (features == torch.tensor(1 / 3)).all()


def test_the_triangle_below_the_diagonal_becomes_the_one_above() -> None:
    matrix = torch.randn(600, 600, generator=torch.Generator().manual_seed(0))
    expected = matrix.triu() + matrix.triu(1).T

    assert torch.equal(mirror_upper(matrix), expected)
    assert torch.equal(matrix, expected)


@pytest.mark.parametrize("is_known", [False, True])
def test_the_logarithm_of_a_sum_of_exponentials_survives_large_and_small_numbers(
    *, is_known: bool
) -> None:
    rows = torch.tensor([[1e4, 1e4, -1e4], [-torch.inf, 0.0, 1.0], [-torch.inf] * 3])
    expected = rows.double().logsumexp(dim=1)

    found = logsumexp(rows, rows.amax(dim=1) if is_known else None)

    torch.testing.assert_close(found[:2].double(), expected[:2])
    assert found[2].isnan()


def test_the_largest_value_of_a_row_is_found() -> None:
    assert argmax(torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, -torch.inf]])).tolist() == [1, 0]


@pytest.mark.parametrize(
    "matrix",
    [SQUARE, SQUARE.tril(), SQUARE.triu(), SQUARE.triu()[:130], SQUARE.tril().T],
    ids=["full", "lower triangular", "upper triangular", "trapezoidal", "not contiguous"],
)
def test_rows_are_projected_whatever_the_shape_of_the_map(matrix: Tensor) -> None:
    rows = torch.randn(7, 150, generator=torch.Generator().manual_seed(2)).double()
    before = rows.clone()

    torch.testing.assert_close(project(matrix, rows), rows @ matrix.T)
    assert torch.equal(rows, before)


@pytest.mark.parametrize("native", [True, False])
def test_a_rounded_product_is_the_same_on_processors_with_and_without_bfloat16(
    monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(200, 300, generator=generator) / 300**0.5
    right = torch.randn(300, 100, generator=generator)
    expected = (left.bfloat16().double() @ right.bfloat16().double()).bfloat16().float()
    monkeypatch.setattr(products, "computes_in_bfloat16", lambda: native)
    out = torch.zeros(200, 150)

    found = rounded_matmul(left, right, out=out[:, 50:])

    assert found.data_ptr() == out[:, 50:].data_ptr()
    assert (out[:, :50] == 0).all()
    assert found.dtype == torch.float32
    # A sum near the middle of two neighbours in bfloat16 may be rounded to either.
    assert (found == expected).double().mean() > 0.998
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-6)
    assert not torch.allclose(found, left @ right, rtol=1e-5, atol=1e-5)
