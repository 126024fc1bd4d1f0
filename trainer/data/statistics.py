"""Mean and standard deviation of training inputs, for the normalisation of a model."""

import torch
from torch import Tensor

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Statistics of red, green and blue in [0, 255], customary for photographs."""

_ROWS_PER_BLOCK = 2048


def mean_and_std(values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Computes mean and standard deviation per channel or dimension, accumulated in float64.

    Args:
        values: Shape (all samples, channels, ...) or (all samples, dim).
        positions: Positions of the samples to use. Shape (samples,).

    Returns:
        Mean and population standard deviation, which is 1 where the values are constant; float32
        on the CPU. Shape (channels,) or (dim,) each.
    """
    others = (0, *range(2, values.ndim))
    total = torch.zeros(values.shape[1], dtype=torch.float64)
    total_squared, count = torch.zeros_like(total), 0
    # Sums about the mean of the first sample lose no digits where the mean is far from zero.
    first = values[positions[:1].to(values.device)].cpu().double()
    level = first.mean(dim=others, keepdim=True)
    for block in positions.split(_ROWS_PER_BLOCK):
        centred = values[block.to(values.device)].cpu().double() - level
        total += centred.sum(dim=others)
        total_squared += centred.square_().sum(dim=others)
        count += centred.numel() // len(total)
    mean = total / count
    variance = (total_squared / count - mean.square()).clamp(min=0)
    std = torch.where(variance > 0, variance.sqrt(), 1.0)
    return (mean + level.flatten()).float(), std.float()


def imagenet_statistics() -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of ImageNet, in [0, 255]; shape (3,) each."""
    return torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
