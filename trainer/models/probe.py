"""A classifier on the features of a frozen backbone."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from difficulty_service.base.errors import ConfigError
from trainer.samples import InputSpec


def probe(
    spec: InputSpec, num_classes: int, *, hidden: Sequence[int] = (), dropout: float = 0.0
) -> nn.Module:
    """A linear layer, or several with ReLU and dropout between them.

    Args:
        spec: Specification of features.
        num_classes: Number of logits.
        hidden: Width of each hidden layer; a linear probe has none.
        dropout: Fraction of each hidden layer's outputs set to zero in training.

    Returns:
        A network from normalised features of shape (samples, dim) to logits of shape (samples,
        num_classes).

    Raises:
        ConfigError: There is dropout but no hidden layer.
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
