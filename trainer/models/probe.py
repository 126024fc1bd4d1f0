"""A classifier on the features of a frozen backbone."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from difficulty_service.errors import ConfigError
from trainer.samples import InputSpec


def probe(
    spec: InputSpec, num_classes: int, *, hidden: Sequence[int] = (), dropout: float = 0.0
) -> nn.Module:
    """A linear layer, or several with ReLU and dropout between them.

    Args:
        spec: Of features.
        num_classes: Number of logits.
        hidden: Width of each hidden layer; none of them makes it linear.
        dropout: Share of each hidden layer's outputs zeroed in training.

    Returns:
        From normalised features of shape (samples, dim) to logits of shape (samples, num_classes).

    Raises:
        ConfigError: There is dropout, and no hidden layer for it.
    """
    if dropout and not hidden:
        raise ConfigError(
            f"probe has dropout {dropout} of hidden layers and none of them; give hidden their "
            "widths, such as [512], or make dropout 0"
        )
    layers: list[nn.Module] = []
    widths = (spec.shape[0], *hidden)
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))
