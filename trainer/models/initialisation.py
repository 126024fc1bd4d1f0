"""First parameters of convolutional networks."""

from torch import nn


def initialise(network: nn.Module) -> None:
    """Fresh parameters in place: normal convolutions, batch normalisation that changes nothing.

    Convolutions are drawn as He et al. (arXiv:1502.01852) with the variance kept in the backward
    pass; linear layers keep PyTorch's own.

    Args:
        network: Any layers.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
