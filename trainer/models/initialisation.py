"""Initial parameters of convolutional networks."""

from torch import nn


def initialise(network: nn.Module) -> None:
    """Initialises parameters in place.

    Convolutions are drawn as in He et al. (arXiv:1502.01852), preserving the variance of the
    backward pass; batch normalisation starts as the identity; linear layers keep PyTorch's own
    initialisation.

    Args:
        network: Network with any layers.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
