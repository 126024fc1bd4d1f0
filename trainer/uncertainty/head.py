"""The uncertainty head: a small network from features to one positive number."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.models.normalisation import STD_FLOOR

NEGATIVE_SLOPE = 0.01
"""Slope of the leaky ReLU between the layers, as in the published code."""

SMALLEST = 1e-6
"""Added to every uncertainty, so that it stays positive where softplus underflows."""


class UncertaintyHead(nn.Module):
    """Predicts the loss of a sample from its features; larger is more uncertain.

    Kirchhof et al. (2024) train it behind a stop-gradient: features are detached, so that no
    gradient reaches what made them. Unlike their code, it standardises the features first, so that
    the learning rate does not depend on the scale of the backbone.

    Attributes:
        mean: Mean of the training features. Shape (dim,).
        std: Standard deviation of the training features, 1 for constant ones. Shape (dim,).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, hidden: Sequence[int] = (512, 512)) -> None:
        """Draws the initial parameters from the global generator.

        Args:
            mean: Mean of the training features. Shape (dim,).
            std: Standard deviation of the training features. Shape (dim,).
            hidden: Width of each hidden layer; none for a linear head.
        """
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", torch.where(std < STD_FLOOR, 1.0, std).float())
        widths = (len(mean), *hidden)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(NEGATIVE_SLOPE)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, features: Tensor) -> Tensor:
        """Computes uncertainties above 0; no gradient flows to the features.

        Args:
            features: Any floating type. Shape (samples, dim).

        Returns:
            Shape (samples,).
        """
        standard = (features.detach().to(self.mean.dtype) - self.mean) / self.std
        return F.softplus(self.layers(standard)).squeeze(-1) + SMALLEST
