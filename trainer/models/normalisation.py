"""Normalisation as a model's first layer, so that a saved model is all that its inputs need."""

import torch
from torch import Tensor, nn

STD_FLOOR = 1e-6
"""A channel or dimension that varies less is taken for constant: centred and not scaled."""


class Normalisation(nn.Module):
    """Raw inputs minus the mean of the training samples, divided by their standard deviation.

    Attributes:
        mean: Per channel or dimension. Shape (channels, 1, 1) or (dim,).
        std: Beside it, nowhere below `STD_FLOOR`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, sample_ndim: int) -> None:
        """Keeps the statistics as buffers.

        Args:
            mean: Shape (channels,) or (dim,).
            std: Same shape.
            sample_ndim: Number of dimensions of one sample: 3 for images, 1 for features.
        """
        super().__init__()
        shape = (-1,) + (1,) * (sample_ndim - 1)
        safe_std = torch.where(std < STD_FLOOR, 1.0, std)
        self.register_buffer("mean", mean.float().reshape(shape))
        self.register_buffer("std", safe_std.float().reshape(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """Float32 inputs around zero, in the memory format they came in.

        Args:
            inputs: Images, uint8 of shape (samples, channels, height, width), or features, float
                of shape (samples, dim).

        Returns:
            Same shape.
        """
        return (inputs.float() - self.mean) / self.std
