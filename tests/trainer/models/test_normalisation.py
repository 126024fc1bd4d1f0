"""The first layer of every model of images or features."""

import torch

from trainer.models.layers import Normalisation


def test_bytes_become_floats_around_zero_per_channel() -> None:
    images = torch.tensor([[[[0, 255]], [[10, 30]]]], dtype=torch.uint8)
    layer = Normalisation(torch.tensor([127.5, 20.0]), torch.tensor([127.5, 5.0]), sample_ndim=3)

    normalised = layer(images)

    torch.testing.assert_close(normalised, torch.tensor([[[[-1.0, 1.0]], [[-2.0, 2.0]]]]))


def test_channels_last_stays_channels_last() -> None:
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8).to(memory_format=torch.channels_last)
    layer = Normalisation(torch.zeros(3), torch.ones(3), sample_ndim=3)

    normalised = layer(images)

    assert normalised.is_contiguous(memory_format=torch.channels_last)


def test_a_dimension_that_never_varies_is_centred_and_not_divided_by_zero() -> None:
    layer = Normalisation(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 2.0]), sample_ndim=1)

    normalised = layer(torch.tensor([[3.0, 5.0]]))

    torch.testing.assert_close(normalised, torch.tensor([[0.0, 2.0]]))


def test_bytes_are_normalised_in_float32_under_autocast() -> None:
    layer = Normalisation(torch.full((3,), 120.0), torch.full((3,), 60.0), sample_ndim=3)

    with torch.autocast("cpu", torch.bfloat16):
        normalised = layer(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))

    assert normalised.dtype == torch.float32
