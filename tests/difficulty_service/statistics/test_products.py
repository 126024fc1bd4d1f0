"""The workspace of a chunk: only features in its own buffer are changed in place."""

import torch

from difficulty_service.statistics.products import Workspace

POINT = torch.tensor([1.0, 2.0, 3.0])


def test_features_in_the_buffer_of_the_workspace_are_centred_in_place() -> None:
    work = Workspace()
    features = work.rows(5, 3).fill_(4)

    centred = work.centred(features, POINT)

    assert centred.data_ptr() == features.data_ptr()
    assert centred.tolist() == [[3, 2, 1]] * 5


def test_features_outside_the_workspace_are_not_changed() -> None:
    work = Workspace()
    work.rows(5, 3).fill_(0)
    features = torch.full((5, 3), 4.0)

    centred = work.centred(features, POINT)

    assert centred.tolist() == [[3, 2, 1]] * 5
    assert (features == 4).all()


def test_float32_features_are_centred_in_float64_if_the_point_is_float64() -> None:
    work = Workspace()
    features = work.rows(2, 3).fill_(1 / 3)

    centred = work.centred(features, POINT.double() / 3)

    assert centred.dtype == torch.float64
    torch.testing.assert_close(centred, features.double() - POINT.double() / 3, rtol=0, atol=0)
    assert (features == torch.tensor(1 / 3)).all()
