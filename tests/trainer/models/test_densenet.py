"""Densely connected networks: their two parts."""

import torch

from trainer.models.residual import GROWTH, DenseLayer, Transition


def test_a_dense_layer_keeps_its_input_and_adds_channels() -> None:
    images = torch.randn(2, 8, 4, 4)

    outputs = DenseLayer(8)(images)

    assert outputs.shape == (2, 8 + GROWTH, 4, 4)
    torch.testing.assert_close(outputs[:, :8], images)


def test_a_transition_halves_channels_and_image() -> None:
    assert Transition(8)(torch.randn(2, 8, 4, 4)).shape == (2, 4, 2, 2)
