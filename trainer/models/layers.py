"""Initial parameters of convolutional networks.

Normalisation as the first layer of a model, so that a saved model takes raw inputs.
"""

import torch
from torch import Tensor, nn


def initialise(network: nn.Module) -> None:
    """Initialises parameters in place.

    Convolutions are drawn as in He et al. (arXiv:1502.01852), preserving the variance of the
    backward pass; batch normalisation starts as the identity; linear layers keep PyTorch's own
    initialisation.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


STD_FLOOR = 1e-6
"""Standard deviation below which a channel or dimension is only centred, and not scaled."""


class Normalisation(nn.Module):
    """Subtracts the mean of the training samples and divides by their standard deviation.

    Attributes:
        mean: Mean per channel or dimension. Shape (channels, 1, 1) or (dim,).
        std: Standard deviation, 1 where it is below `STD_FLOOR`. Same shape.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, sample_ndim: int) -> None:
        """Registers the statistics, of shape (channels,) or (dim,), as buffers.

        A sample has 3 dimensions if it is an image, and 1 if it is features.
        """
        super().__init__()
        shape = (-1,) + (1,) * (sample_ndim - 1)
        safe_std = torch.where(std < STD_FLOOR, 1.0, std)
        self.register_buffer("mean", mean.float().reshape(shape))
        self.register_buffer("std", safe_std.float().reshape(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalises inputs to float32, in their memory format; the shape stays."""
        return (inputs.float() - self.mean) / self.std
