"""Densely connected networks (Huang et al., arXiv:1608.06993) for small images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.models.layers import initialise
from trainer.samples import InputSpec

GROWTH = 32
BLOCKS = (6, 12, 24, 16)


class DenseLayer(nn.Module):
    """A 1x1 and a 3x3 convolution whose outputs are concatenated with their inputs."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, 4 * GROWTH, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, in_channels + GROWTH, h, w)."""
        hidden = self.conv1(F.relu(self.bn1(images)))
        hidden = self.conv2(F.relu(self.bn2(hidden)))
        return torch.cat((images, hidden), dim=1)


class Transition(nn.Module):
    """A 1x1 convolution that halves the channels, and a 2x2 average pooling."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, in_channels // 2, 1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, in_channels / 2, h / 2, w / 2)."""
        return F.avg_pool2d(self.conv(F.relu(self.bn(images))), 2)


class DenseNet(nn.Module):
    """A 3x3 convolution, blocks of dense layers, global average pooling, and a linear layer."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        channels = 2 * GROWTH
        layers: list[nn.Module] = [nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)]
        for block, count in enumerate(BLOCKS):
            if block > 0:
                layers.append(Transition(channels))
                channels //= 2
            for _ in range(count):
                layers.append(DenseLayer(channels))
                channels += GROWTH
        self.layers = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images, shape (samples, channels, h, w), to logits (samples, num_classes)."""
        hidden = F.relu(self.bn(self.layers(images)))
        return self.classifier(hidden.mean((2, 3)))


def densenet121(spec: InputSpec, num_classes: int) -> nn.Module:
    """DenseNet-121 with a 3x3 first convolution of stride 1 and no max-pool.

    For images of at least 8 pixels on each side; 7.0 million parameters at 10 classes.
    """
    return DenseNet(spec.shape[0], num_classes)
