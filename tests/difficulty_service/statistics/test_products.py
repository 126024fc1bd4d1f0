"""The memory that chunks share: what was read to it may be changed, what others hold may not."""

import torch

from difficulty_service.statistics.products import Workspace

POINT = torch.tensor([1.0, 2.0, 3.0])


def test_features_that_were_read_to_the_workspace_are_centred_in_place() -> None:
    work = Workspace()
    features = work.rows(5, 3).fill_(4)

    centred = work.centred(features, POINT)

    assert centred.data_ptr() == features.data_ptr()
    assert centred.tolist() == [[3, 2, 1]] * 5


def test_features_of_somebody_else_stay_as_they_are() -> None:
    work = Workspace()
    work.rows(5, 3).fill_(0)
    features = torch.full((5, 3), 4.0)

    centred = work.centred(features, POINT)

    assert centred.tolist() == [[3, 2, 1]] * 5
    assert (features == 4).all()


def test_features_read_in_float32_are_centred_in_float64_where_the_point_is() -> None:
    work = Workspace()
    features = work.rows(2, 3).fill_(1 / 3)

    centred = work.centred(features, POINT.double() / 3)

    assert centred.dtype == torch.float64
    torch.testing.assert_close(centred, features.double() - POINT.double() / 3, rtol=0, atol=0)
    assert (features == torch.tensor(1 / 3)).all()
