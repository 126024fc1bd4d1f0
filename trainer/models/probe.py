"""A classifier on the features of a frozen backbone."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from difficulty_service.base.errors import ConfigError
from trainer.samples import InputSpec


def probe(
    spec: InputSpec, num_classes: int, *, hidden: Sequence[int] = (), dropout: float = 0.0
) -> nn.Module:
    """A linear layer, or several with ReLU and dropout between them, for features (samples, dim).

    `hidden` is the width of each hidden layer; a linear probe has none, and no dropout.
    """
    if dropout and not hidden:
        raise ConfigError(
            f"probe has dropout {dropout} but no hidden layer",
            "set hidden to widths of layers, such as [512], or dropout to 0",
        )
    layers: list[nn.Module] = []
    widths = (spec.shape[0], *hidden)
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))
