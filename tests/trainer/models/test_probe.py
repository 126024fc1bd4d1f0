"""Classifiers on features."""

import pytest
import torch
from torch import nn

from difficulty_service.base.errors import ConfigError
from trainer.config import ModelConfig
from trainer.models import build_model, probe
from trainer.samples import InputSpec


def test_a_linear_probe_multiplies_standardised_features() -> None:
    mean, std = torch.tensor([1.0, -2, 5, 0]), torch.tensor([0.5, 2, 3, 1])
    model = build_model(ModelConfig(name="probe"), InputSpec((4,), mean, std), num_classes=3)
    features = torch.randn(7, 4)

    logits = model(features)

    parameters = dict(model.named_parameters())
    weight, bias = parameters["network.0.weight"], parameters["network.0.bias"]
    torch.testing.assert_close(logits, (features - mean) / std @ weight.T + bias)


def test_hidden_layers_have_the_given_widths() -> None:
    model = probe(InputSpec((4,)), 3, hidden=[8, 5], dropout=0.25)

    widths = [(layer.in_features, layer.out_features) for layer in linear_layers(model)]

    assert widths == [(4, 8), (8, 5), (5, 3)]
    assert model(torch.randn(2, 4)).shape == (2, 3)
    assert [layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)] == [0.25, 0.25]


@pytest.mark.parametrize("hidden", [[0], [8, 0], [-1]])
def test_a_hidden_layer_without_width_is_refused(hidden: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"hidden = .* of 1 or more"):
        probe(InputSpec((4,)), 3, hidden=hidden)


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
