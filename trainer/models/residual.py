"""Blocks of residual networks (He et al., arXiv:1512.03385), and networks made of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from trainer.models.initialisation import initialise


class ProjectionShortcut(nn.Sequential):
    """A 1x1 convolution with batch normalisation where the shape changes, the identity elsewhere.

    Option B of He et al.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        changes = stride != 1 or in_channels != channels
        layers: list[nn.Module] = []
        if changes:
            layers.append(nn.Conv2d(in_channels, channels, 1, stride, bias=False))
            layers.append(nn.BatchNorm2d(channels))
        super().__init__(*layers)


class PaddingShortcut(nn.Module):
    """Subsampling and zero padding of the channels, without parameters. Option A of He et al."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = channels - in_channels

    def forward(self, images: Tensor) -> Tensor:
        """Maps images from the block's input shape to its output shape."""
        if self.stride == 1 and self.new_channels == 0:
            return images
        subsampled = images[:, :, :: self.stride, :: self.stride]
        return F.pad(subsampled, (0, 0, 0, 0, 0, self.new_channels))


Shortcut = type[ProjectionShortcut] | type[PaddingShortcut]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int,
        shortcut: Shortcut = ProjectionShortcut,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = shortcut(in_channels, channels, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, channels, h / stride, w / stride)."""
        hidden = F.relu(self.bn1(self.conv1(images)))
        hidden = self.bn2(self.conv2(hidden))
        return F.relu(hidden + self.shortcut(images))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the output has four times the channels."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        wide = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.shortcut = ProjectionShortcut(in_channels, wide, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, 4 channels, h / stride, w / stride)."""
        hidden = F.relu(self.bn1(self.conv1(images)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        hidden = self.bn3(self.conv3(hidden))
        return F.relu(hidden + self.shortcut(images))


@dataclass(frozen=True)
class ResNetPlan:
    """The architecture of a residual network.

    Attributes:
        stem: Number of channels after the first convolution.
        widths: Number of channels of the convolutions of each stage; every stage but the first
            halves the image.
        blocks: Number of blocks of each stage.
        bottleneck: Whether blocks have three convolutions rather than two.
        stem_stride: Stride of the first convolution.
        shortcut: Shortcut of basic blocks, where the shape changes.
        pooled_size: Height and width of the grid that the last stage is averaged to.
    """

    stem: int
    widths: Sequence[int]
    blocks: Sequence[int]
    bottleneck: bool = False
    stem_stride: int = 1
    shortcut: Shortcut = ProjectionShortcut
    pooled_size: int = 1


class ResNet(nn.Module):
    """A 3x3 convolution, stages of blocks, average pooling, and a linear layer."""

    def __init__(self, in_channels: int, num_classes: int, plan: ResNetPlan) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, plan.stem, 3, plan.stem_stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(plan.stem)
        blocks: list[nn.Module] = []
        channels = plan.stem
        for stage, (width, count) in enumerate(zip(plan.widths, plan.blocks, strict=True)):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                if plan.bottleneck:
                    blocks.append(Bottleneck(channels, width, stride))
                    channels = width * Bottleneck.expansion
                else:
                    blocks.append(BasicBlock(channels, width, stride, plan.shortcut))
                    channels = width
        self.blocks = nn.Sequential(*blocks)
        self.pooled_size = plan.pooled_size
        self.classifier = nn.Linear(channels * plan.pooled_size**2, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Computes logits of normalised images.

        Args:
            images: Shape (samples, channels, height, width).

        Returns:
            Shape (samples, num_classes).
        """
        hidden = self.blocks(F.relu(self.bn1(self.conv1(images))))
        return self.classifier(F.adaptive_avg_pool2d(hidden, self.pooled_size).flatten(1))
